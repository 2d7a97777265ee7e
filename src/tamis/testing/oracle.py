"""The oracle: what a predicate means, in plain Python.

It defines the meaning; every exact engine has to give the same answer for every
event. It reads the tree of `tamis.language` and nothing else, so that no bug of
the C++ evaluation can hide in it, and it is written to be read, not to be fast.

    truth(node, event) ──► True │ False │ None (unknown)      three-valued, as in SQL
    matches            ──► truth is True

    unknown:  the event lacks the attribute │ its value has another type
              one side is NaN               │ an area, and the event has no position
    never unknown:  EXISTS, IS NULL, TRUE, FALSE

Numbers compare by mathematical value: Python compares int with float exactly, so
nothing is rounded here. Strings compare by their UTF-8 bytes.
"""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tamis.errors import ArgumentError, EventError
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
)

EARTH_RADIUS_M = 6371008.8
RADIANS_PER_DEGREE = math.pi / 180.0

SMALLEST_INTEGER = -(2**63)
LARGEST_INTEGER = 2**64 - 1  # an event may hold unsigned integers, a literal may not

Truth = bool | None
Position = tuple[float, float]
Scalar = bool | int | float | str

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(
    node: Node,
    attributes: Mapping[str, object],
    at: Position | None = None,
    space: str = "plane",
) -> bool:
    """Whether the event satisfies the predicate: only *true* does, unknown does not."""
    return truth(node, attributes, at, space) is True


def truth(
    node: Node,
    attributes: Mapping[str, object],
    at: Position | None = None,
    space: str = "plane",
) -> Truth:
    """The predicate's truth for the event; None is *unknown*."""
    match node:
        case Constant(constant):
            return constant
        case Not(part):
            return _not(truth(part, attributes, at, space))
        case And(parts):
            return _and([truth(part, attributes, at, space) for part in parts])
        case Or(parts):
            return _not(_and([_not(truth(part, attributes, at, space)) for part in parts]))
        case Exists(name):
            return normalise(attributes.get(name)) is not None
        case IsNull(name):
            return normalise(attributes.get(name)) is None
        case Compare(name, op, literal):
            return _compare(normalise(attributes.get(name)), op, literal)
        case Between(name, low, high):
            value = normalise(attributes.get(name))
            return _and([_compare(value, ">=", low), _compare(value, "<=", high)])
        case In(name, literals):
            value = normalise(attributes.get(name))
            return _not(_and([_compare(value, "!=", literal) for literal in literals]))
        case Like(name, pattern, escape):
            value = normalise(attributes.get(name))
            return _like(value, pattern, escape) if isinstance(value, str) else None
        case Near(x, y, radius):
            return _near((x, y), radius, at, space)
        case _:
            raise ArgumentError(f"node must be a part of a predicate, not {type(node).__name__}")


def normalise(value: object) -> Scalar | None:
    """An event's value as the language sees it: bool, int, float, str, or None for absent.

    A datetime counts as microseconds since the epoch in UTC (a naive one is UTC), a date as its
    midnight, a numpy scalar as its Python value, NaT as absent.
    """
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, np.generic):
        if isinstance(value, np.timedelta64 | np.longdouble | np.complexfloating):
            raise EventError(
                "the value of an attribute must be a number, a string, a boolean or a datetime, "
                f"not {type(value).__name__}"
            )
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days * 86_400_000_000
    if isinstance(value, int):
        if not SMALLEST_INTEGER <= value <= LARGEST_INTEGER:
            raise EventError(f"an integer must lie between -2^63 and 2^64-1, not be {value:d}")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)  # str() of an enum member would give its name
    raise EventError(
        "the value of an attribute must be a number, a string, a boolean or a datetime, "
        f"not {type(value).__name__}"
    )


def _not(part: Truth) -> Truth:
    return None if part is None else not part


def _and(parts: list[Truth]) -> Truth:
    if False in parts:
        return False
    return None if None in parts else True


def _compare(value: Scalar | None, op: str, literal: Scalar) -> Truth:
    holds = _COMPARISONS[op]
    # bool before numbers: to Python True is an int, to the language it is not a number.
    if isinstance(value, bool) or isinstance(literal, bool):
        if not (isinstance(value, bool) and isinstance(literal, bool)):
            return None
        if op not in ("=", "!="):
            raise ArgumentError(f"booleans must be compared with = or !=, not {op}")
        return holds(value, literal)
    if isinstance(value, str) and isinstance(literal, str):
        return holds(value.encode("utf-8"), literal.encode("utf-8"))
    if isinstance(value, int | float) and isinstance(literal, int | float):
        if math.isnan(value) or math.isnan(literal):
            return None
        return holds(value, literal)
    return None


def _like(text: str, pattern: str, escape: str | None) -> bool:
    """Whether the whole text fits, by the set of places the pattern can have reached."""
    reached = {0}
    for kind, character in _pattern_tokens(pattern, escape):
        if kind == "run":
            reached = set(range(min(reached), len(text) + 1))
        else:
            reached = {
                place + 1
                for place in reached
                if place < len(text) and (kind == "one" or text[place] == character)
            }
        if not reached:
            return False
    return len(text) in reached


def _pattern_tokens(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """The pattern as ("run", "") for %, ("one", "") for _ and ("exactly", character)."""
    tokens = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:  # first: the escape character may itself be % or _
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise ArgumentError(
                    f"the escape character must stand before %, _ or itself, not {character!r}"
                )
            tokens.append(("exactly", character))
        elif character == "%":
            tokens.append(("run", ""))
        elif character == "_":
            tokens.append(("one", ""))
        else:
            tokens.append(("exactly", character))
    return tokens


def _near(centre: Position, radius: float, at: Position | None, space: str) -> Truth:
    if space not in ("plane", "earth"):
        raise ArgumentError(f'space must be "plane" or "earth", not {space!r}')
    if at is None:
        return None
    x, y = float(at[0]), float(at[1])
    if math.isnan(x) or math.isnan(y):
        return None
    if space == "plane":
        dx, dy = x - centre[0], y - centre[1]
        return dx * dx + dy * dy <= radius * radius
    if math.isinf(x) or math.isinf(y):  # an infinite angle is no place on a sphere
        return None
    return _chord_squared((x, y), centre) <= _chord_squared_limit(radius)


def _unit_vector(position: Position) -> tuple[float, float, float]:
    longitude, latitude = position[0] * RADIANS_PER_DEGREE, position[1] * RADIANS_PER_DEGREE
    return (
        math.cos(latitude) * math.cos(longitude),
        math.cos(latitude) * math.sin(longitude),
        math.sin(latitude),
    )


def _chord_squared(position: Position, centre: Position) -> float:
    (ux, uy, uz), (vx, vy, vz) = _unit_vector(position), _unit_vector(centre)
    # The order of these additions is part of the definition: engines repeat it bit by bit.
    return ((ux - vx) * (ux - vx) + (uy - vy) * (uy - vy)) + (uz - vz) * (uz - vz)


def _chord_squared_limit(radius_m: float) -> float:
    if radius_m >= math.pi * EARTH_RADIUS_M:  # half the circumference: nothing is farther
        return math.inf
    half_angle_sine = math.sin(radius_m / (2.0 * EARTH_RADIUS_M))
    chord = 2.0 * half_angle_sine
    return chord * chord
