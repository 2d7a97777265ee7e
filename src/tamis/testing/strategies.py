"""Hypothesis strategies for predicates, and for events that nearly or really match them.

Random values hardly ever meet, and a test in which nothing matches tests nothing.
So there is *gravity*: few names, literals mostly from a small pool of boundary
values, and events made for given predicates in two steps:

    1. scatter: for each name in the predicates, a value at or beside one of its
       literals, of another type, odd (NaN, infinities, unsigned), or nothing
    2. aim (mostly): walk down one predicate with the truth that is wanted and
       overwrite the attributes so that each leaf on the way gets it

The second step only biases: leaves of one predicate may contradict each other.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tamis.errors import UnavailableError
from tamis.language import (
    And,
    Between,
    Compare,
    Constant,
    Exists,
    In,
    IsNull,
    Like,
    Near,
    Node,
    Not,
    Or,
    Timestamp,
)
from tamis.testing.cases import Event
from tamis.testing.oracle import (
    EARTH_RADIUS_M,
    LARGEST_INTEGER,
    SMALLEST_INTEGER,
    Position,
    Scalar,
    truth,
)

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise UnavailableError(
        "tamis.testing.strategies needs Hypothesis, which is not installed: "
        'pip install "tamis[test]"'
    ) from error

_T = TypeVar("_T")

# "A" beside "a": case matters. "in" and "Timestamp" are keywords and have to be quoted.
NAMES = ("a", "b", "A", "data.temp", "any name", "ünï", "in", "Timestamp", 'quo"ted', "_x9")

INTEGERS = (0, 1, -1, 2, 5, 30, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (
    *(0.0, -0.0, 0.1, 0.5, 1.0, 2.5, 5.0, -1.0, 30.0, 2.0**53, 2.0**63, -(2.0**63)),
    *(1e308, -1e308, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308),
)
STRINGS = (
    *("", "a", "aa", "aaa", "ab", "b", "A", "é", "e\u0301", "😀", "\uffff", "\U00010000"),
    *("%", "_", "\\", "'", '"', "\0", "a\0", "a\nb", "area1", "area2", "TRUE", "5"),
)
ODD_NUMBERS = (math.nan, math.inf, -math.inf, 2**63, 2**64 - 1, -0.0)

_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_TIMESTAMP = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
_LAST_TIMESTAMP = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
TIMESTAMPS = tuple(
    map(Timestamp, (0, 1, -1, 1_794_736_800_000_000, _FIRST_TIMESTAMP, _LAST_TIMESTAMP))
)

_CHARACTERS = st.characters(exclude_categories=["Cs"])
_PLANE_COORDINATES = (0.0, -0.0, 1.0, 3.0, 4.0, -3.0, 0.1, 0.5, 1e-200, 1e9)
_PLANE_RADII = (0.0, 1.0, 5.0, 0.1, math.sqrt(2.0), 5e-324, 1e9, 1e200)
_LONGITUDES = (0.0, 180.0, -180.0, 179.999, -179.999, 90.0, 13.4, -0.0)
_LATITUDES = (0.0, 90.0, -90.0, 89.999, -89.999, 52.5, -0.0)
_EARTH_RADII_M = (
    *(0.0, 1.0, 1000.0, 250_000.0, 10_007_557.0, 20_015_000.0, 1e8),
    *(math.pi * EARTH_RADIUS_M, math.nextafter(math.pi * EARTH_RADIUS_M, 0.0)),
)


# ── literals and names ──────────────────────────────────────────────────────────────


@functools.cache
def names() -> st.SearchStrategy[str]:
    """Names of attributes: few, so that predicates and events share them."""
    return st.sampled_from(NAMES)


@functools.cache
def numbers() -> st.SearchStrategy[int | float]:
    """Literals that are numbers: 64-bit integers and finite doubles."""
    return st.one_of(
        st.sampled_from(INTEGERS),
        st.sampled_from(FLOATS),
        st.integers(-8, 8),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
    )


@functools.cache
def timestamps() -> st.SearchStrategy[Timestamp]:
    """Literals that are timestamps, within the years 1 to 9999."""
    return st.one_of(
        st.sampled_from(TIMESTAMPS),
        st.integers(_FIRST_TIMESTAMP, _LAST_TIMESTAMP).map(Timestamp),
    )


@functools.cache
def strings() -> st.SearchStrategy[str]:
    """Literals that are strings: any characters but surrogates."""
    return st.one_of(
        st.sampled_from(STRINGS),
        st.text(st.sampled_from("ab%_é😀'"), max_size=4),
        st.text(_CHARACTERS, max_size=6),
    )


@functools.cache
def values() -> st.SearchStrategy[Scalar]:
    """Literals of every type."""
    return st.one_of(numbers(), strings(), st.booleans(), timestamps())


# ── predicates ──────────────────────────────────────────────────────────────────────


@functools.cache
def predicates(max_leaves: int = 8, space: str | None = "plane") -> st.SearchStrategy[Node]:
    """Trees of every kind of node; `space` chooses the circles, None means none."""
    leaves = [
        _comparisons(),
        _comparisons(),  # twice: the kind that most predicates are made of
        _betweens(),
        _ins(),
        _likes(),
        st.builds(Exists, names()),
        st.builds(IsNull, names()),
        st.builds(Constant, st.booleans()),
    ]
    if space is not None:
        leaves.append(areas(space))
    return st.recursive(
        st.one_of(leaves),
        lambda parts: st.one_of(
            st.lists(parts, min_size=2, max_size=4).map(lambda found: And(tuple(found))),
            st.lists(parts, min_size=2, max_size=4).map(lambda found: Or(tuple(found))),
            st.builds(Not, parts),
        ),
        max_leaves=max_leaves,
    )


@functools.cache
def areas(space: str = "plane") -> st.SearchStrategy[Near]:
    """Circles with finite centres and radii that are not negative."""
    if space == "plane":
        coordinates = st.one_of(st.sampled_from(_PLANE_COORDINATES), st.floats(-10.0, 10.0))
        radii = st.one_of(st.sampled_from(_PLANE_RADII), st.floats(0.0, 10.0))
        return st.builds(Near, coordinates, coordinates, radii)
    return st.builds(
        Near,
        st.one_of(st.sampled_from(_LONGITUDES), st.floats(-180.0, 180.0)),
        st.one_of(st.sampled_from(_LATITUDES), st.floats(-90.0, 90.0)),
        st.one_of(st.sampled_from(_EARTH_RADII_M), st.floats(0.0, 3e7)),
    )


@functools.cache
def _comparisons() -> st.SearchStrategy[Node]:
    any_order = st.sampled_from(("=", "!=", "<", "<=", ">", ">="))
    ordered = st.one_of(numbers(), strings(), timestamps())
    return st.one_of(
        st.builds(Compare, names(), any_order, ordered),
        st.builds(Compare, names(), any_order, st.sampled_from(INTEGERS)),
        st.builds(Compare, names(), st.sampled_from(("=", "!=")), st.booleans()),
    )


@functools.cache
def _betweens() -> st.SearchStrategy[Node]:
    def between(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
        return st.builds(Between, names(), kind, kind)  # now and then reversed: never true

    return st.one_of(between(numbers()), between(strings()), between(timestamps()))


@functools.cache
def _ins() -> st.SearchStrategy[Node]:
    def member(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
        return st.builds(In, names(), st.lists(kind, min_size=1, max_size=6).map(tuple))

    return st.one_of(
        member(numbers()), member(strings()), member(st.booleans()), member(timestamps())
    )


_ESCAPES = st.one_of(st.none(), st.sampled_from("\\!%_é😀"))
# Two characters stand for a wildcard, one for itself.
_PATTERN_PIECES = st.lists(
    st.one_of(st.sampled_from(("%%", "__", *"ab%_é😀\\!\n'")), _CHARACTERS), max_size=6
)


@st.composite
def _likes(draw: st.DrawFn) -> Node:
    escape = draw(_ESCAPES)
    pattern = ""
    for piece in draw(_PATTERN_PIECES):
        character = piece[0]
        if escape is not None and (character == escape or (len(piece) == 1 and character in "%_")):
            pattern += escape + character
        else:
            pattern += character
    return Like(draw(names()), pattern, escape)


# ── events ──────────────────────────────────────────────────────────────────────────


@functools.cache
def event_values() -> st.SearchStrategy[object]:
    """Values that an event may have, whatever the predicates: None is absent."""
    return st.one_of(
        values(),
        st.sampled_from(ODD_NUMBERS),
        st.integers(2**63, LARGEST_INTEGER),
        st.none(),
        st.datetimes(),
        st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=2)))),
    )


@st.composite
def events(draw: st.DrawFn, predicate: Node | Sequence[Node], space: str = "plane") -> Event:
    """Events for one predicate or several, biased to match one of them."""
    roots = [predicate] if isinstance(predicate, Node) else list(predicate)
    leaves = [leaf for root in roots for leaf in root.walk()]
    attributes: dict[str, Any] = {}
    for name in dict.fromkeys(leaf.name for leaf in leaves if hasattr(leaf, "name")):
        beside = [
            value
            for leaf in leaves
            if getattr(leaf, "name", "") == name
            for value in _near_by(leaf)
        ]
        value = _pick(draw, beside) if draw(_BELOW[3]) else draw(event_values())
        if value is not None or draw(_COIN):  # absent: no key, or a key with None
            attributes[name] = value
    at: Position | None = None
    circles = [leaf for leaf in leaves if isinstance(leaf, Near)]
    if circles:
        at = _pick(draw, _positions(circles, space)) if draw(_COIN) else draw(positions(space))
    elif draw(_BELOW[4]) == 0:
        at = draw(positions(space))

    if len(roots) > 0 and draw(_BELOW[4]) > 0:
        root = _pick(draw, roots)
        want = draw(_BELOW[4]) > 0
        at = _aim(draw, root, want, attributes, at, space)

    for name in draw(_FEW_NAMES):
        attributes.setdefault(name, draw(event_values()))
    if draw(_COIN):
        attributes["unrelated"] = draw(event_values())
    return Event(attributes, at)


@functools.cache
def positions(space: str = "plane") -> st.SearchStrategy[Position | None]:
    """Positions, among them none at all and, now and then, one with a NaN."""
    if space == "plane":
        x = y = st.one_of(st.sampled_from(_PLANE_COORDINATES), st.floats(-20.0, 20.0))
    else:
        x = st.one_of(st.sampled_from(_LONGITUDES), st.floats(-180.0, 180.0))
        y = st.one_of(st.sampled_from(_LATITUDES), st.floats(-90.0, 90.0))
    odd = st.sampled_from((None, None, (math.nan, 0.0), (0.0, math.nan), (1e308, -1e308)))
    if space == "earth":
        odd = st.sampled_from((None, None, (math.nan, 0.0), (0.0, math.nan), (190.0, 0.0)))
    return st.one_of(st.tuples(x, y), st.tuples(x, y), st.tuples(x, y), odd)


@st.composite
def scenes(
    draw: st.DrawFn,
    space: str | None = "plane",
    max_predicates: int = 8,
    max_events: int = 6,
    max_leaves: int = 8,
) -> tuple[list[Node], list[Event]]:
    """Predicates for one matcher and events for them; without circles where space is None."""
    wanted = st.lists(predicates(max_leaves, space), min_size=1, max_size=max_predicates)
    found: list[Node] = draw(wanted)
    sent = draw(st.lists(events(found, space or "plane"), min_size=1, max_size=max_events))
    if space is None:
        sent = [Event(event.attributes) for event in sent]
    return found, sent


# Strategies are made once: making them anew for each draw took 133 s where this takes 30 s
# (2,600 examples, 2 cores, 2026-11).
_COIN = st.booleans()
_BELOW = [st.integers(0, max(0, n_options - 1)) for n_options in range(400)]
_FEW_NAMES = st.lists(names(), max_size=2)


def _pick(draw: st.DrawFn, options: Sequence[_T]) -> _T:
    return options[draw(_BELOW[min(len(options), len(_BELOW) - 1)])]


def _aim(
    draw: st.DrawFn,
    node: Node,
    want: bool,
    attributes: dict[str, Any],
    at: Position | None,
    space: str,
) -> Position | None:
    """Changes the attributes so that the node gets the wanted truth; gives the position for it."""
    match node:
        case Not(part):
            return _aim(draw, part, not want, attributes, at, space)
        case And(parts) | Or(parts):
            # All parts where the wish needs all of them, else one.
            if isinstance(node, And) != want:
                parts = (_pick(draw, parts),)
            for part in parts:
                at = _aim(draw, part, want, attributes, at, space)
            return at
        case Near():
            if truth(node, {}, at, space) is want:
                return at
            found = [
                place
                for place in _positions([node], space)
                if truth(node, {}, place, space) is want
            ]
            return _pick(draw, found) if found else at
        case Constant():
            return at
        case Compare() | Between() | In() | Like() | Exists() | IsNull():
            if truth(node, attributes) is not want:
                fitting: list[object] = [
                    value
                    for value in (*_near_by(node), None)
                    if truth(node, {node.name: value}) is want
                ]
                if fitting:
                    attributes[node.name] = _pick(draw, fitting)
            return at
        case _:
            return at


def _near_by(leaf: Node) -> list[object]:
    """Values at, just below and just above the leaf's literals; a few of another type."""
    found: list[object] = []
    match leaf:
        case Compare(_, _, literal):
            found = _neighbours(literal)
        case Between(_, low, high):
            found = _neighbours(low) + _neighbours(high)
        case In(_, literals):
            found = [value for literal in literals for value in _neighbours(literal)]
        case Like(_, pattern, escape):
            found = _strings_like(pattern, escape)
        case Exists() | IsNull():
            found = [0, 1, "a", True, math.nan, ""]
    return found


def _neighbours(literal: Scalar) -> list[object]:
    if isinstance(literal, bool):
        return [literal, not literal, literal, int(literal)]
    if isinstance(literal, str):
        return [literal, *_string_neighbours(literal)]
    exact: int | float = int(literal) if isinstance(literal, int) else literal
    close: list[int | float] = [exact, exact]
    rounded = float(literal)
    close += [rounded, math.nextafter(rounded, math.inf), math.nextafter(rounded, -math.inf)]
    if math.isfinite(rounded):
        whole = int(literal)
        close += [int(rounded), whole, whole + 1, whole - 1, -whole, -rounded]
    found: list[object] = [
        number
        for number in close
        if isinstance(number, float) or SMALLEST_INTEGER <= number <= LARGEST_INTEGER
    ]
    if isinstance(literal, Timestamp):
        found.append(_EPOCH + datetime.timedelta(microseconds=literal))
    return [*found, str(exact), True]


def _string_neighbours(text: str) -> list[object]:
    close: list[object] = [text + "\0", text + "a", "a" + text, text.swapcase(), 1]
    if text:
        last = ord(text[-1])
        steps: Iterable[int] = (last - 1, last + 1)
        close.append(text[:-1])
        close += [
            text[:-1] + chr(code)
            for code in steps
            if 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
        ]
    return close


def _strings_like(pattern: str, escape: str | None) -> list[object]:
    """Strings that fit the pattern, with runs of several lengths, and some that just do not."""
    fits: list[str] = []
    fillings: tuple[tuple[str, str], ...] = (("", "a"), ("a", "b"), ("b\n😀", "é"), ("%", "_"))
    for run, one in fillings:
        text = ""
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                text += next(characters)
            else:
                text += run if character == "%" else one if character == "_" else character
        fits.append(text)
    return [*fits, *fits, *_string_neighbours(fits[0]), pattern, 0]


def _positions(circles: Sequence[Near], space: str) -> list[Position]:
    """Positions in, on, just inside and just outside each circle."""
    found: list[Position] = []
    for circle in circles:
        x, y, radius = circle.x, circle.y, circle.radius
        found.append((x, y))
        if space == "plane":
            found += _around(x, y, radius, radius, 1e-6)
            found += [(x + 0.6 * radius, y + 0.8 * radius), (x - 3.0 * radius - 1.0, y)]
        else:
            north = radius / EARTH_RADIUS_M / math.pi * 180.0
            east = north / max(math.cos(y / 180.0 * math.pi), 1e-3)
            found += _around(x, y, east, north, 1e-6)
            found += [(x + 180.0, -y), (x + 90.0, y)]
    if space == "earth":
        # Round the globe, and no farther north or south than the poles.
        found = [(_wrap(x), max(-90.0, min(90.0, y))) for x, y in found]
    return found


def _around(x: float, y: float, dx: float, dy: float, margin: float) -> list[Position]:
    step: Callable[[float, float], float] = math.nextafter
    return [
        *((x + dx, y), (x - dx, y), (x, y + dy), (x, y - dy)),
        *((step(x + dx, math.inf), y), (step(x + dx, -math.inf), y)),
        *((x, step(y + dy, math.inf)), (x, step(y + dy, -math.inf))),
        *((x + dx * (1.0 + margin), y), (x, y - dy * (1.0 - margin)), (x, y + dy * 0.5)),
    ]


def _wrap(longitude: float) -> float:
    if -180.0 <= longitude <= 180.0:
        return longitude
    return math.remainder(longitude, 360.0)
