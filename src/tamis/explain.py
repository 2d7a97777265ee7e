"""Why an event matches a predicate, or why not: every constraint with its outcome and the reason.

The outcomes come from the oracle, node by node; only the words are made here. So an explanation
cannot say another thing than the language means.

    explain(parse("area = 'north' AND temp > 30"), {"area": "north", "temp": 25})

    ✗ area = 'north' AND temp > 30: 1 of 2 parts did not hold
      ✓ area = 'north': area is 'north'
      ✗ temp > 30: temp is 25, not above 30

Leaves are evaluated on the event, and an AND, OR or NOT on the outcomes of its parts, so the cost
is that of one evaluation however deep the tree is.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tamis.errors import ArgumentTypeError
from tamis.events import coerce
from tamis.language import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Near,
    Node,
    Not,
    Timestamp,
    Value,
    print_name,
    print_value,
)
from tamis.testing import oracle

Outcome = Literal["held", "failed", "unknown"]

_OUTCOMES: dict[oracle.Truth, Outcome] = {True: "held", False: "failed", None: "unknown"}
_OPPOSITE: dict[Outcome, Outcome] = {"held": "failed", "failed": "held", "unknown": "unknown"}
_MARKS: dict[Outcome, str] = {"held": "✓", "failed": "✗", "unknown": "?"}

# Stand-ins with a known truth, for evaluating a node on the outcomes of its parts. No event has
# the attribute "", so the last one is unknown.
_STAND_INS: dict[Outcome, Node] = {
    "held": Constant(True),
    "failed": Constant(False),
    "unknown": Compare("", "=", 0),
}

# What the text shows; the data has everything.
_MAX_PARTS = 20  # of one node
_MAX_LINES = 200
_MAX_TEXT = 72  # characters of a predicate in one line
_MAX_VALUE = 48  # characters of a value in a reason
_MAX_LISTED = 3  # values of an IN in a reason


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What became of a predicate, or of a part of it, on one event.

    node     the part of the predicate; `text` is how it is written
    outcome  "held", "failed" or "unknown"; only a predicate that held matches
    reason   why, in words
    parts    the same for each part of an AND, OR or NOT

    `str` gives the tree as text, cut where it is very wide; `to_dict` the whole tree for JSON.
    """

    node: Node
    outcome: Outcome
    reason: str
    parts: tuple[Explanation, ...] = ()

    @property
    def matched(self) -> bool:
        """Whether the event matches; unknown does not."""
        return self.outcome == "held"

    @property
    def text(self) -> str:
        """The predicate, or the part of it, as the language writes it."""
        return str(self.node)

    @property
    def failed(self) -> list[Explanation]:
        """The constraints that stood in the way, failed or unknown; none after a match.

        Of an OR each alternative is here, and one of them would have been enough. A constraint
        that held and should not have, inside a NOT, is here as `NOT constraint`.
        """
        return list(_in_the_way(self, wanted="held"))

    def to_dict(self) -> dict[str, Any]:
        """The tree of plain values: text, outcome, reason and, where there are any, parts."""
        tree: dict[str, Any] = {
            "text": self.text,
            "outcome": self.outcome,
            "reason": self.reason,
        }
        if self.parts:
            tree["parts"] = [part.to_dict() for part in self.parts]
        return tree

    def __repr__(self) -> str:
        return f"<Explanation: {_cut(self.text, _MAX_TEXT)} {self.outcome}, {self.reason}>"

    def __str__(self) -> str:
        lines = list(itertools.islice(_lines(self, 0), _MAX_LINES + 1))
        if len(lines) > _MAX_LINES:
            lines[_MAX_LINES:] = ["… and more, which to_dict() has"]
        return "\n".join(lines)


def explain(
    node: Node,
    attributes: Mapping[str, object],
    at: tuple[float, float] | None = None,
    space: str = "plane",
) -> Explanation:
    """What became of each part of a predicate on one event.

    An event that a matcher refuses is refused here, too, with the same error.
    """
    if not isinstance(node, Node):
        raise ArgumentTypeError(f"node must be a tree of tamis.parse, not a {type(node).__name__}")
    if isinstance(attributes, Mapping):
        attributes = dict(attributes)
    names = list(dict.fromkeys(part.name for part in node.walk() if hasattr(part, "name")))
    _let_a_matcher_read(names, attributes, at, space)
    event = _Event(
        {name: _to_plain(name, attributes[name]) for name in names if name in attributes},
        None if at is None else (_to_coordinate(at[0]), _to_coordinate(at[1])),
        space,
    )
    return _explain(node, event)


class _Event(NamedTuple):
    attributes: dict[str, oracle.Scalar | None]
    at: tuple[float, float] | None
    space: str

    def outcome_of(self, node: Node) -> Outcome:
        return _OUTCOMES[oracle.truth(node, self.attributes, self.at, self.space)]


def _let_a_matcher_read(names: list[str], attributes: Any, at: Any, space: str) -> None:
    """Raises what a matcher raises for this event.

    Not with the predicate itself: printed anew it may be longer than a text may be.
    """
    from tamis.matcher import Matcher  # which imports this module

    matcher = Matcher(engine="naive", space=space, threads=1)
    for idx, name in enumerate(names):
        matcher.subscribe(idx, IsNull(name))
    matcher.match(attributes, at=at)


def _to_plain(name: str, value: object) -> oracle.Scalar | None:
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[return-value]
    return oracle.normalise(coerce(name, value))


def _to_coordinate(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _explain(node: Node, event: _Event) -> Explanation:
    parts = tuple(_explain(part, event) for part in node.children())
    if not parts:
        outcome = event.outcome_of(node)
        return Explanation(node, outcome, _reason_of_leaf(node, outcome, event))
    stand_ins = tuple(_STAND_INS[part.outcome] for part in parts)
    bare = Not(stand_ins[0]) if isinstance(node, Not) else type(node)(stand_ins)  # type: ignore[call-arg]
    outcome = _OUTCOMES[oracle.truth(bare, {})]
    return Explanation(node, outcome, _reason_of_parts(node, outcome, parts), parts)


def _in_the_way(found: Explanation, wanted: Outcome) -> Iterator[Explanation]:
    """The constraints because of which the outcome is not the wanted one.

    AND wants every part held and OR one of them; wanted failed, it is the other way round. In both
    cases the parts that are not as wanted are those that would have to change.
    """
    if found.outcome == wanted:
        return
    if isinstance(found.node, Not):
        yield from _in_the_way(found.parts[0], _OPPOSITE[wanted])
    elif found.parts:
        for part in found.parts:
            yield from _in_the_way(part, wanted)
    elif wanted == "held":
        yield found
    else:
        yield Explanation(Not(found.node), _OPPOSITE[found.outcome], found.reason, (found,))


# ── reasons ─────────────────────────────────────────────────────────────────────────


def _reason_of_parts(node: Node, outcome: Outcome, parts: tuple[Explanation, ...]) -> str:
    if isinstance(node, Not):
        if not parts[0].parts:  # a negated constraint: the reason is the constraint's own
            return parts[0].reason
        return {
            "held": "the part failed",
            "failed": "the part held",
            "unknown": "the part is unknown",
        }[outcome]
    n_of = Counter(part.outcome for part in parts)
    n_held = n_of["held"]
    total = f"{len(parts):,} parts"
    if n_held == len(parts):
        return "both parts held" if len(parts) == 2 else f"all {total} held"
    if isinstance(node, And):
        return f"{len(parts) - n_held:,} of {total} did not hold"
    return f"{n_held:,} of {total} held" if n_held else f"none of {total} held"


def _reason_of_leaf(node: Node, outcome: Outcome, event: _Event) -> str:
    if isinstance(node, Constant):
        return "always true" if node.value else "always false"
    if isinstance(node, Near):
        return _reason_of_area(node, outcome, event)
    value = event.attributes.get(node.name)  # type: ignore[attr-defined]
    name = _cut(print_name(node.name), _MAX_VALUE)  # type: ignore[attr-defined]
    if value is None:
        return f"{name} is missing"
    literals = _literals_of(node)
    if outcome == "unknown":
        if isinstance(value, float) and math.isnan(value):
            return f"{name} is NaN, which compares with nothing"
        return f"{name} is {_type_of(value)}, and {_types_of(node, literals)}"
    as_time = any(isinstance(literal, Timestamp) for literal in literals)
    fact = f"{name} is {_shown(value, as_time)}"
    relation = _relation(node, outcome == "held", event)
    return f"{fact}, {relation}" if relation else fact


def _relation(node: Node, is_held: bool, event: _Event) -> str:
    """How a value relates to what was asked; empty where the value says it all."""
    match node:
        case Compare(_, op, literal):
            return _RELATIONS[op][is_held](_shown(literal))
        case Between(name, low, high):
            if is_held:
                return f"between {_shown(low)} and {_shown(high)}"
            if oracle.truth(Compare(name, "<=", high), {name: low}) is False:
                return f"and nothing is between {_shown(low)} and {_shown(high)}"
            if event.outcome_of(Compare(name, ">=", low)) == "failed":
                return f"below {_shown(low)}"
            return f"above {_shown(high)}"
        case In(_, literals):
            if is_held:
                return "" if len(literals) == 1 else f"one of {_listed(literals)}"
            return f"not {'' if len(literals) == 1 else 'one of '}{_listed(literals)}"
        case Like(_, pattern, _):
            return f"which {'fits' if is_held else 'does not fit'} {_shown(pattern)}"
        case _:  # EXISTS, IS NULL
            return ""


_RELATIONS: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {  # failed, held
    "=": (lambda literal: f"not {literal}", lambda literal: ""),
    "!=": (lambda literal: "", lambda literal: f"not {literal}"),
    "<": (lambda literal: f"not below {literal}", lambda literal: f"below {literal}"),
    "<=": (lambda literal: f"above {literal}", lambda literal: f"at most {literal}"),
    ">": (lambda literal: f"not above {literal}", lambda literal: f"above {literal}"),
    ">=": (lambda literal: f"below {literal}", lambda literal: f"at least {literal}"),
}


def _listed(literals: tuple[Value, ...]) -> str:
    if len(literals) > _MAX_LISTED:
        return f"the {len(literals):,} values"
    return ", ".join(_shown(literal) for literal in literals)


def _literals_of(node: Node) -> tuple[Value, ...]:
    match node:
        case Compare(_, _, literal):
            return (literal,)
        case Between(_, low, high):
            return (low, high)
        case In(_, literals):
            return literals
        case Like(_, pattern, _):
            return (pattern,)
        case _:
            return ()


def _type_of(value: Value) -> str:
    if isinstance(value, bool):
        return "a boolean"
    return "a string" if isinstance(value, str) else "a number"


def _types_of(node: Node, literals: tuple[Value, ...]) -> str:
    if isinstance(node, Like):
        return "LIKE needs a string"
    kind = _type_of(literals[0])
    if len(literals) == 1:
        return f"{_shown(literals[0])} is {kind}"
    shown = " and ".join(map(_shown, literals)) if isinstance(node, Between) else _listed(literals)
    return f"{shown} are {kind.removeprefix('a ')}s"


def _shown(value: Value, as_time: bool = False) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"
    if as_time and isinstance(value, int):
        value = Timestamp(value)
    if isinstance(value, str) and len(value) > _MAX_VALUE:
        return print_value(value[:_MAX_VALUE] + "…")
    return print_value(value)


def _reason_of_area(node: Near, outcome: Outcome, event: _Event) -> str:
    if event.at is None:
        return "the event has no position"
    if outcome == "unknown":
        return "the event's position is NaN, which counts as none"
    if event.space == "plane":
        distance, unit = math.hypot(event.at[0] - node.x, event.at[1] - node.y), ""
    else:
        chord = math.sqrt(oracle._chord_squared(event.at, (node.x, node.y)))
        distance, unit = 2.0 * oracle.EARTH_RADIUS_M * math.asin(min(1.0, chord / 2.0)), " m"
    is_held = outcome == "held"
    relation = "within" if is_held else "outside"
    shown, limit = _told_apart(distance, node.radius)
    # The border: what is shown is rounded otherwise than what decided.
    if (shown == limit and not is_held) or is_held != (distance <= node.radius):
        relation = f"just {relation}"
    return f"{shown}{unit} from the centre, {relation} {limit}{unit}"


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as few digits as tell them apart."""
    for n_digits in (3, 6, 9, 12, 17):
        shown = tuple(_rounded(number, n_digits) for number in (one, other))
        if shown[0] != shown[1]:
            break
    return shown[0], shown[1]


def _rounded(number: float, n_digits: int) -> str:
    if abs(number) >= 10.0**n_digits and abs(number) < 1e15:
        return f"{number:.0f}"
    return f"{number:.{n_digits}g}"


# ── text ────────────────────────────────────────────────────────────────────────────


def _lines(found: Explanation, depth: int) -> Iterator[str]:
    indent = "  " * depth
    text = _cut(_one_line(found.node), _MAX_TEXT)
    yield f"{indent}{_MARKS[found.outcome]} {text}: {_one_line(found.reason)}"
    if isinstance(found.node, Not) and not found.parts[0].parts:
        return  # a negated constraint is one line
    parts = found.parts
    if len(parts) > _MAX_PARTS:
        parts = _most_telling(found)
    for part in parts:
        yield from _lines(part, depth + 1)
    if len(parts) < len(found.parts):
        hidden = Counter(part.outcome for part in found.parts)
        hidden.subtract(part.outcome for part in parts)
        counts = ", ".join(
            f"{hidden[outcome]:,} {outcome}" for outcome in _MARKS if hidden[outcome]
        )
        yield f"{indent}  … {len(found.parts) - len(parts):,} more: {counts}"


def _most_telling(found: Explanation) -> tuple[Explanation, ...]:
    """The first parts, those before all that made the outcome what it is; in their order."""
    decisive = [place for place, part in enumerate(found.parts) if part.outcome == found.outcome]
    others = [place for place, part in enumerate(found.parts) if part.outcome != found.outcome]
    shown = sorted((decisive + others)[:_MAX_PARTS])
    return tuple(found.parts[place] for place in shown)


def _one_line(text: object) -> str:
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in str(text)
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
