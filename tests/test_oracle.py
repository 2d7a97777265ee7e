"""The oracle itself, by hand: it defines the meaning, so nothing else can check it."""

from __future__ import annotations

import datetime
import enum
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

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
    Timestamp,
)
from tamis.testing import load_cases, matches, normalise, truth

T = Constant(True)
F = Constant(False)
U = Compare("absent", "=", 0)
NAN = math.nan
NEXT_TO_2_53 = 2**53 + 1

BY_TRUTH: dict[bool | None, Node] = {True: T, False: F, None: U}

AND_TABLE = {
    (True, True): True,
    (True, False): False,
    (True, None): None,
    (False, True): False,
    (False, False): False,
    (False, None): False,
    (None, True): None,
    (None, False): False,
    (None, None): None,
}
OR_TABLE = {
    (True, True): True,
    (True, False): True,
    (True, None): True,
    (False, True): True,
    (False, False): False,
    (False, None): None,
    (None, True): True,
    (None, False): None,
    (None, None): None,
}


@pytest.mark.parametrize(("sides", "expected"), AND_TABLE.items(), ids=str)
def test_and_is_kleene(sides: tuple[bool | None, bool | None], expected: bool | None) -> None:
    assert truth(And((BY_TRUTH[sides[0]], BY_TRUTH[sides[1]])), {}) is expected


@pytest.mark.parametrize(("sides", "expected"), OR_TABLE.items(), ids=str)
def test_or_is_kleene(sides: tuple[bool | None, bool | None], expected: bool | None) -> None:
    assert truth(Or((BY_TRUTH[sides[0]], BY_TRUTH[sides[1]])), {}) is expected


def test_not_keeps_unknown() -> None:
    assert truth(Not(T), {}) is False
    assert truth(Not(F), {}) is True
    assert truth(Not(U), {}) is None


def test_and_and_or_take_many_parts() -> None:
    assert truth(And((T, T, T, F)), {}) is False
    assert truth(And((T, U, T)), {}) is None
    assert truth(Or((F, U, T)), {}) is True
    assert truth(Or((F, U, F)), {}) is None


def test_only_true_matches() -> None:
    assert matches(T, {})
    assert not matches(F, {})
    assert not matches(U, {})
    assert not matches(Not(U), {})


ORDER_TABLE = {
    "=": (False, True, False),
    "!=": (True, False, True),
    "<": (True, False, False),
    "<=": (True, True, False),
    ">": (False, False, True),
    ">=": (False, True, True),
}


@pytest.mark.parametrize(("op", "expected"), ORDER_TABLE.items())
@pytest.mark.parametrize(
    "triple",
    [
        (4, 5, 6),
        (4.5, 5, 5.5),
        (4.999999999999999, 5.0, 5.000000000000001),
        (2**53, NEXT_TO_2_53, 2**53 + 2),
        (2.0**53, NEXT_TO_2_53, 2.0**53 + 2),
        (2**63 - 2, 2**63 - 1, 2.0**63),
        (2**63 - 2, 2**63 - 1, 2**64 - 1),
        (-math.inf, -(2**63), -(2**63) + 1),
        (-5e-324, 0, 5e-324),
        (-5e-324, -0.0, 5e-324),
        ("", "a", "a\0"),
        ("Z", "a", "é"),
        ("\uffff", "\U00010000", "\U0010ffff"),
    ],
    ids=repr,
)
def test_comparisons_below_at_and_above(
    op: str, expected: tuple[bool, bool, bool], triple: tuple[float | str, float | str, float | str]
) -> None:
    below, literal, above = triple
    constraint = Compare("x", op, literal)
    assert tuple(truth(constraint, {"x": value}) for value in (below, literal, above)) == expected


@pytest.mark.parametrize("op", ORDER_TABLE)
@pytest.mark.parametrize("value", [None, "5", True, False, NAN, ""], ids=repr)
def test_comparison_with_another_type_nan_or_nothing_is_unknown(op: str, value: object) -> None:
    constraint = Compare("x", op, 5)
    assert truth(constraint, {"x": value}) is None
    assert truth(Not(constraint), {"x": value}) is None
    assert truth(constraint, {}) is None


def test_zero_has_one_value() -> None:
    for value in (0, 0.0, -0.0):
        assert truth(Compare("x", "=", 0), {"x": value}) is True
        assert truth(Compare("x", "=", -0.0), {"x": value}) is True
        assert truth(Compare("x", "<", 0), {"x": value}) is False


def test_booleans_are_no_numbers() -> None:
    assert truth(Compare("x", "=", True), {"x": True}) is True
    assert truth(Compare("x", "!=", True), {"x": False}) is True
    assert truth(Compare("x", "=", True), {"x": 1}) is None
    assert truth(Compare("x", "=", 1), {"x": True}) is None
    assert truth(Compare("x", "!=", 0), {"x": True}) is None
    assert truth(In("x", (0, 1)), {"x": True}) is None
    assert truth(Between("x", 0, 1), {"x": True}) is None


def test_ordering_booleans_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="= or !="):
        truth(Compare("x", "<", True), {"x": False})


def test_between() -> None:
    node = Between("x", 1, 3)
    values = (0, 1, 2.5, 3, 3.5)
    assert [truth(node, {"x": value}) for value in values] == [False, True, True, True, False]
    for value in (None, "2", True, NAN):
        assert truth(node, {"x": value}) is None
        assert truth(Not(node), {"x": value}) is None


def test_reversed_between_is_false_for_its_type_and_unknown_else() -> None:
    node = Between("x", 3, 1)
    assert [truth(node, {"x": value}) for value in (0, 2, 4)] == [False, False, False]
    assert [truth(node, {"x": value}) for value in ("2", NAN, None)] == [None, None, None]


def test_in() -> None:
    node = In("x", (1, 2.5, NEXT_TO_2_53))
    assert truth(node, {"x": 1.0}) is True
    assert truth(node, {"x": NEXT_TO_2_53}) is True
    assert truth(node, {"x": 2.0**53}) is False
    for value in (None, "1", True, NAN):
        assert truth(node, {"x": value}) is None
    assert truth(In("x", ("a", "é")), {"x": "é"}) is True
    assert truth(In("x", ("a", "é")), {"x": "e\u0301"}) is False
    assert truth(In("x", (True,)), {"x": False}) is False


LIKE_TABLE = [
    ("", None, {"": True, "a": False}),
    ("%", None, {"": True, "a\nb": True}),
    ("_", None, {"": False, "é": True, "😀": True, "e\u0301": False, "\n": True}),
    ("a%b", None, {"ab": True, "a\nb": True, "abc": False, "Ab": False}),
    ("%a_", None, {"ab": True, "aab": True, "a": False, "ba\n": True}),
    ("a\\%", None, {"a\\": True, "a%": False}),
    ("a\\%", "\\", {"a%": True, "a\\": False, "a": False}),
    ("!!!_!%", "!", {"!_%": True, "!!_%": False}),
    ("%%a", "%", {"%a": True, "a": False}),
    ("__%", "_", {"_": True, "_x": True, "ab": False}),
    ("%aab%aab", None, {"aaabaaab": True, "aabab": False, "aab": False}),
    (".*[a]?", None, {".*[a]?": True, "xa": False}),
]


@pytest.mark.parametrize(("pattern", "escape", "answers"), LIKE_TABLE)
def test_like(pattern: str, escape: str | None, answers: Mapping[str, bool]) -> None:
    for text, expected in answers.items():
        assert truth(Like("x", pattern, escape), {"x": text}) is expected, text


def test_like_needs_a_string() -> None:
    for value in (None, 5, True, NAN):
        assert truth(Like("x", "%"), {"x": value}) is None


@pytest.mark.parametrize("pattern", ["a!", "!a"])
def test_escape_before_nothing_to_escape_is_an_error(pattern: str) -> None:
    with pytest.raises(ArgumentError, match="escape character"):
        truth(Like("x", pattern, "!"), {"x": "a"})


def test_exists_and_is_null_are_never_unknown() -> None:
    for value in (0, "", False, NAN, math.inf):
        assert truth(Exists("x"), {"x": value}) is True
        assert truth(IsNull("x"), {"x": value}) is False
    for attributes in ({}, {"x": None}):
        assert truth(Exists("x"), attributes) is False
        assert truth(IsNull("x"), attributes) is True


def test_plane_border_belongs() -> None:
    node = Near(0.0, 0.0, 5.0)
    assert truth(node, {}, (3.0, 4.0)) is True
    assert truth(node, {}, (math.nextafter(5.0, 6.0), 0.0)) is False
    assert truth(node, {}, (5, 0)) is True
    assert truth(Near(1.0, 2.0, 0.0), {}, (1.0, 2.0)) is True


def test_plane_overflow_follows_the_doubles() -> None:
    assert truth(Near(0.0, 0.0, 1e200), {}, (1e300, 0.0)) is True
    assert truth(Near(0.0, 0.0, 1.0), {}, (1e300, 0.0)) is False
    assert truth(Near(0.0, 0.0, 1.0), {}, (math.inf, 0.0)) is False


@pytest.mark.parametrize("space", ["plane", "earth"])
@pytest.mark.parametrize("at", [None, (NAN, 0.0), (0.0, NAN)])
def test_area_without_a_position_is_unknown(space: str, at: tuple[float, float] | None) -> None:
    assert truth(Near(0.0, 0.0, 1e9), {}, at, space) is None
    assert truth(Not(Near(0.0, 0.0, 1e9)), {}, at, space) is None


def test_earth_distances() -> None:
    def within(centre: tuple[float, float], at: tuple[float, float], radius_m: float) -> object:
        return truth(Near(*centre, radius_m), {}, at, "earth")

    one_degree_m = 111_195.08
    assert within((0.0, 0.0), (1.0, 0.0), one_degree_m + 1) is True
    assert within((0.0, 0.0), (1.0, 0.0), one_degree_m - 1) is False
    assert within((179.5, 0.0), (-179.5, 0.0), one_degree_m + 1) is True
    assert within((0.0, 89.5), (180.0, 89.5), one_degree_m + 1) is True
    assert within((0.0, 89.5), (180.0, 89.5), one_degree_m - 1) is False
    assert within((13.405, 52.52), (13.405, 52.52), 0.0) is True
    assert within((10.0, 20.0), (-170.0, -20.0), 20_015_115.0) is True
    assert within((10.0, 20.0), (-170.0, -20.0), 20_000_000.0) is False
    assert within((0.0, 0.0), (180.0, 0.0), 1e300) is True


def test_an_infinite_coordinate_is_no_place_on_earth() -> None:
    assert truth(Near(0.0, 0.0, 1e9), {}, (math.inf, 0.0), "earth") is None


def test_unknown_space_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="plane"):
        truth(Near(0.0, 0.0, 1.0), {}, (0.0, 0.0), "mars")


def test_normalise_keeps_plain_values() -> None:
    for value in (None, True, False, 0, 2**64 - 1, -(2**63), 1.5, "", "é"):
        assert normalise(value) is value or normalise(value) == value
        assert type(normalise(value)) is type(value)


def test_normalise_datetimes() -> None:
    moment = datetime.datetime(2026, 11, 15, 10, 0, 0)
    east = datetime.timezone(datetime.timedelta(hours=2))
    expected = 1_794_736_800_000_000
    assert normalise(moment) == expected
    assert normalise(moment.replace(tzinfo=datetime.UTC)) == expected
    assert normalise(moment.replace(hour=12, tzinfo=east)) == expected
    assert normalise(datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)) == -1
    assert normalise(datetime.datetime.max) == 253_402_300_799_999_999
    assert truth(Compare("t", "=", Timestamp(expected)), {"t": moment}) is True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.int64(NEXT_TO_2_53), NEXT_TO_2_53),
        (np.float32(0.5), 0.5),
        (np.float32(0.1), 0.10000000149011612),
        (np.float64(0.1), 0.1),
        (np.bool_(True), True),
        (np.str_("é"), "é"),
        (Timestamp(5), 5),
    ],
    ids=repr,
)
def test_normalise_scalars(value: object, expected: object) -> None:
    found = normalise(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "value",
    [b"a", [1], {"a": 1}, 1j, 2**64, -(2**63) - 1, np.timedelta64(1, "s"), object()],
    ids=repr,
)
def test_normalise_refuses_what_is_no_value(value: object) -> None:
    with pytest.raises(EventError):
        normalise(value)


def test_strings_of_enums_are_their_values() -> None:
    class Colour(str, enum.Enum):  # noqa: UP042 (the kind whose str() is its name)
        RED = "red"

    assert normalise(Colour.RED) == "red"


def test_something_else_than_a_node_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="not str"):
        truth("x = 1", {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"name": "a", "predicate": "TRUE"}]', "events or be invalid"),
        ('[{"name": "a", "predicate": "TRUE", "mach": []}]', "keys of one form"),
        ('[{"name": "a", "predicate": "x", "match": [{"attributes": {"x": NaN}}]}]', "standard"),
        ('[{"name": "a", "predicate": "x", "match": [{"x": 1}]}]', "must have attributes"),
        (
            '[{"name": "a", "predicates": {"s": "x"}, "events": [{"attributes": {},'
            ' "expect": ["t"]}]}]',
            "ids that it subscribes",
        ),
        (
            '[{"name": "a", "predicate": "", "invalid": true},'
            ' {"name": "a", "predicate": "", "invalid": true}]',
            "unique",
        ),
    ],
)
def test_load_cases_refuses_what_is_no_case(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad.json").write_text(content, encoding="utf-8")
    with pytest.raises(ArgumentError, match=message):
        load_cases(tmp_path)


def test_load_cases_refuses_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must hold"):
        load_cases(tmp_path)


def test_load_cases_decodes_odd_values(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(
        '[{"name": "a", "predicate": "EXISTS x", "match": [{"attributes": {"x": {"$float": "nan"},'
        ' "z": {"$float": "-0.0"}, "s": {"$repeat": ["ab", 3]}, "i": 18446744073709551615,'
        ' "f": 1e2}, "at": [1, 2.5]}]}]',
        encoding="utf-8",
    )
    (case,) = load_cases(tmp_path)
    ((event, expected),) = case.events
    assert expected == {"s"}
    assert math.isnan(event.attributes["x"])
    assert math.copysign(1.0, event.attributes["z"]) == -1.0
    assert event.attributes["s"] == "ababab"
    assert event.attributes["i"] == 2**64 - 1
    assert isinstance(event.attributes["f"], float)
    assert event.at == (1.0, 2.5)


def test_without_hypothesis_the_oracle_works_and_strategies_say_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['hypothesis'] = None\n"  # makes the import fail
        "import tamis.testing\n"
        "from tamis.errors import UnavailableError\n"
        "try:\n"
        "    tamis.testing.strategies\n"
        "except UnavailableError as error:\n"
        "    print(error)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert 'pip install "tamis[test]"' in shown
