"""Predicates as a tree that Python can see, print and compare.

`parse` reads text with the C++ parser and gives the tree; `str` of a node prints
text that parses to an equal tree. Nodes are plain frozen dataclasses, so a
predicate can also be put together in Python and handed over as `str(node)`.

    And ─┬─ Compare(name="area", op="=", value="area1")
         └─ Not ── Between(name="temp", low=1, high=30)

`docs/language.md` is the normative page.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

from tamis import _core
from tamis.errors import ArgumentTypeError

KEYWORDS = frozenset(_core.keywords())

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Timestamp(int):
    """Microseconds since the epoch in UTC: an integer that prints as a TIMESTAMP literal."""

    def __repr__(self) -> str:
        return f"Timestamp({int(self)})"

    def __str__(self) -> str:
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=int(self))
        except OverflowError:  # outside the years 1 to 9999: no such literal, but the same number
            return int.__repr__(self)
        return f"TIMESTAMP '{moment.replace(tzinfo=None).isoformat()}Z'"


Value = bool | int | float | str


class Node:
    """A part of a predicate."""

    __slots__ = ()
    # How strongly the printed form binds: OR 1, AND 2, NOT 3, everything else 4.
    _binding: ClassVar[int] = 4

    def children(self) -> tuple[Node, ...]:
        return ()

    def walk(self) -> Iterator[Node]:
        """This node and everything below it, parents first."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children()))

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        """Text, and parts with the binding from which they need parentheses."""
        raise NotImplementedError

    def __str__(self) -> str:
        # A stack of its own: trees may be deeper than Python's.
        text: list[str] = []
        stack: list[str | tuple[Node, int]] = [(self, 0)]
        while stack:
            piece = stack.pop()
            if isinstance(piece, str):
                text.append(piece)
                continue
            node, binding = piece
            pieces = list(node._pieces())
            if node._binding <= binding:
                pieces = ["(", *pieces, ")"]
            stack.extend(reversed(pieces))
        return "".join(text)


def _joined(parts: tuple[Node, ...], word: str, binding: int) -> Iterator[str | tuple[Node, int]]:
    for position, part in enumerate(parts):
        if position:
            yield word
        yield part, binding


@dataclass(frozen=True, slots=True)
class Or(Node):
    """True where one part is true."""

    parts: tuple[Node, ...]
    _binding: ClassVar[int] = 1

    def children(self) -> tuple[Node, ...]:
        return self.parts

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        return _joined(self.parts, " OR ", 1)


@dataclass(frozen=True, slots=True)
class And(Node):
    """True where every part is true."""

    parts: tuple[Node, ...]
    _binding: ClassVar[int] = 2

    def children(self) -> tuple[Node, ...]:
        return self.parts

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        return _joined(self.parts, " AND ", 2)


@dataclass(frozen=True, slots=True)
class Not(Node):
    """True where the part is false; unknown stays unknown."""

    part: Node
    _binding: ClassVar[int] = 3

    def children(self) -> tuple[Node, ...]:
        return (self.part,)

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        if isinstance(self.part, Between | In | Like | IsNull):
            yield self.part._text("NOT ")
        else:
            yield "NOT "
            yield self.part, 2


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """TRUE or FALSE."""

    value: bool

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield print_value(self.value)


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """`name op value`, with op one of = != < <= > >=."""

    name: str
    op: str
    value: Value

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield f"{print_name(self.name)} {self.op} {print_value(self.value)}"


@dataclass(frozen=True, slots=True)
class Between(Node):
    """`low <= name <= high`; both ends belong to it."""

    name: str
    low: Value
    high: Value

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield self._text("")

    def _text(self, negation: str) -> str:
        ends = f"{print_value(self.low)} AND {print_value(self.high)}"
        return f"{print_name(self.name)} {negation}BETWEEN {ends}"


@dataclass(frozen=True, slots=True)
class In(Node):
    """One of the values, all of one type."""

    name: str
    values: tuple[Value, ...]

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield self._text("")

    def _text(self, negation: str) -> str:
        values = ", ".join(map(print_value, self.values))
        return f"{print_name(self.name)} {negation}IN ({values})"


@dataclass(frozen=True, slots=True)
class Like(Node):
    """A string that fits the pattern: `%` any run, `_` one character."""

    name: str
    pattern: str
    escape: str | None = None

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield self._text("")

    def _text(self, negation: str) -> str:
        escape = "" if self.escape is None else f" ESCAPE {print_value(self.escape)}"
        return f"{print_name(self.name)} {negation}LIKE {print_value(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """True where the event has the attribute, false where not; never unknown."""

    name: str

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield f"EXISTS {print_name(self.name)}"


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """True where the event lacks the attribute, false where not; never unknown."""

    name: str

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield self._text("")

    def _text(self, negation: str) -> str:
        return f"{print_name(self.name)} IS {negation}NULL"


@dataclass(frozen=True, slots=True)
class Near(Node):
    """The event's position lies within `radius` of (x, y); the border belongs to it."""

    x: float
    y: float
    radius: float

    def _pieces(self) -> Iterator[str | tuple[Node, int]]:
        yield f"NEAR({', '.join(map(print_value, (self.x, self.y, self.radius)))})"


def parse(text: str) -> Node:
    """The tree of a predicate; a `LanguageError` shows the place of a mistake."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"a predicate must be a str, not {text!r}")
    return cast(Node, _core.parse(text))


def print_name(name: str) -> str:
    """An attribute's name as the language writes it, quoted where it must be."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def print_value(value: Value) -> str:
    """A literal as the language writes it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return "'" + value.replace("'", "''") + "'"
