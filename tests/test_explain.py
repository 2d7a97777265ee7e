"""Explanations: the reason of every kind of constraint, and agreement with the matcher."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from tamis.explain import Explanation, explain
from tamis.language import And, Compare, Node, Not, Or, parse
from tamis.testing import Event, oracle, strategies


def explained(
    predicate: str, event: Any = None, at: Any = None, space: str = "plane"
) -> Explanation:
    return explain(parse(predicate), {} if event is None else event, at, space)


def verdict(predicate: str, event: Any = None, **options: Any) -> str:
    """`outcome: reason`"""
    found = explained(predicate, event, **options)
    return f"{found.outcome}: {found.reason}"


# ── the reason of each kind of constraint ───────────────────────────────────────────

T = datetime.datetime(2026, 11, 15, 10, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("predicate", "value", "expected"),
    [
        ("x = 30", 30, "held: x is 30"),
        ("x = 30", 30.0, "held: x is 30.0"),
        ("x = 30", 25, "failed: x is 25, not 30"),
        ("x != 30", 25, "held: x is 25, not 30"),
        ("x != 30", 30, "failed: x is 30"),
        ("x > 30", 35, "held: x is 35, above 30"),
        ("x > 30", 25, "failed: x is 25, not above 30"),
        ("x > 30", 30, "failed: x is 30, not above 30"),
        ("x >= 30", 30, "held: x is 30, at least 30"),
        ("x >= 30", 25, "failed: x is 25, below 30"),
        ("x < 30", 25, "held: x is 25, below 30"),
        ("x < 30", 30, "failed: x is 30, not below 30"),
        ("x <= 30", 25, "held: x is 25, at most 30"),
        ("x <= 30", 31, "failed: x is 31, above 30"),
        ("x > 30", None, "unknown: x is missing"),
        ("x > 30", "25", "unknown: x is a string, and 30 is a number"),
        ("x > 30", True, "unknown: x is a boolean, and 30 is a number"),
        ("x = 'a'", 5, "unknown: x is a number, and 'a' is a string"),
        ("x = TRUE", 1, "unknown: x is a number, and TRUE is a boolean"),
        ("x = TRUE", False, "failed: x is FALSE, not TRUE"),
        ("x > 30", math.nan, "unknown: x is NaN, which compares with nothing"),
        ("x > 30", math.inf, "held: x is infinity, above 30"),
        ("x > 30", -math.inf, "failed: x is -infinity, not above 30"),
        ("x = 'it''s'", "it", "failed: x is 'it', not 'it''s'"),
        ("x = 9007199254740993", 2**53, "failed: x is 9007199254740992, not 9007199254740993"),
        ("x BETWEEN 1 AND 9", 5, "held: x is 5, between 1 and 9"),
        ("x BETWEEN 1 AND 9", 0, "failed: x is 0, below 1"),
        ("x BETWEEN 1 AND 9", 10, "failed: x is 10, above 9"),
        ("x BETWEEN 9 AND 1", 5, "failed: x is 5, and nothing is between 9 and 1"),
        ("x BETWEEN 1 AND 9", "5", "unknown: x is a string, and 1 and 9 are numbers"),
        ("x IN (1)", 1, "held: x is 1"),
        ("x IN (1)", 2, "failed: x is 2, not 1"),
        ("x IN ('a', 'b')", "a", "held: x is 'a', one of 'a', 'b'"),
        ("x IN ('a', 'b')", "c", "failed: x is 'c', not one of 'a', 'b'"),
        ("x IN (1, 2, 3, 4)", 5, "failed: x is 5, not one of the 4 values"),
        ("x IN (1, 2, 3, 4)", "5", "unknown: x is a string, and the 4 values are numbers"),
        ("x LIKE 'a%'", "abc", "held: x is 'abc', which fits 'a%'"),
        ("x LIKE 'a%'", "bcd", "failed: x is 'bcd', which does not fit 'a%'"),
        ("x LIKE 'a%'", 5, "unknown: x is a number, and LIKE needs a string"),
        ("EXISTS x", 5, "held: x is 5"),
        ("EXISTS x", math.nan, "held: x is NaN"),
        ("EXISTS x", None, "failed: x is missing"),
        ("x IS NULL", None, "held: x is missing"),
        ("x IS NULL", "a", "failed: x is 'a'"),
        ("x IS NOT NULL", "a", "held: x is 'a'"),
        ("NOT x > 30", 35, "failed: x is 35, above 30"),
        ("NOT x > 30", None, "unknown: x is missing"),
        ("TRUE", None, "held: always true"),
        ("FALSE", None, "failed: always false"),
        (
            "x > TIMESTAMP '2026-11-15'",
            T,
            "held: x is TIMESTAMP '2026-11-15T10:00:00Z', above TIMESTAMP '2026-11-15T00:00:00Z'",
        ),
    ],
)
def test_the_reason_of_a_constraint(predicate: str, value: object, expected: str) -> None:
    assert verdict(predicate, {"x": value}) == expected


@pytest.mark.parametrize(
    ("predicate", "at", "space", "expected"),
    [
        ("NEAR(0, 0, 300)", None, "plane", "unknown: the event has no position"),
        ("NEAR(0, 0, 300)", (412, 0), "plane", "failed: 412 from the centre, outside 300"),
        ("NEAR(0, 0, 5)", (3, 4), "plane", "held: 5 from the centre, within 5"),
        ("NEAR(0, 0, 5)", (1, 1), "plane", "held: 1.41 from the centre, within 5"),
        (
            "NEAR(0, 0, 300)",
            (300.0000001, 0),
            "plane",
            "failed: 300.0000001 from the centre, outside 300",
        ),
        (
            "NEAR(0, 0, 300)",
            (math.nan, 0),
            "plane",
            "unknown: the event's position is NaN, which counts as none",
        ),
        ("NEAR(0, 0, 0)", (1e-200, 0), "plane", "held: 1e-200 from the centre, just within 0"),
        (
            "NEAR(13.405, 52.52, 27000)",
            (13.0645, 52.3906),
            "earth",
            "failed: 27191 m from the centre, outside 27000 m",
        ),
        (
            "NEAR(0, 0, 1e9)",
            (180, 0),
            "earth",
            "held: 20015114 m from the centre, within 1000000000 m",
        ),
    ],
)
def test_the_reason_of_an_area(predicate: str, at: Any, space: str, expected: str) -> None:
    assert verdict(predicate, at=at, space=space) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("a = 1 AND b = 1", "held: both parts held"),
        ("a = 1 AND b = 1 AND EXISTS a", "held: all 3 parts held"),
        ("a = 1 AND b = 2", "failed: 1 of 2 parts did not hold"),
        ("a = 1 AND c = 2", "unknown: 1 of 2 parts did not hold"),
        ("a = 1 OR b = 2", "held: 1 of 2 parts held"),
        ("a = 2 OR b = 2", "failed: none of 2 parts held"),
        ("a = 2 OR c = 2", "unknown: none of 2 parts held"),
        ("NOT (a = 1 AND b = 2)", "held: the part failed"),
        ("NOT (a = 1 OR b = 2)", "failed: the part held"),
        ("NOT (a = 2 OR c = 2)", "unknown: the part is unknown"),
    ],
)
def test_the_reason_of_a_combination(predicate: str, expected: str) -> None:
    assert verdict(predicate, {"a": 1, "b": 1}) == expected


def test_an_odd_name_is_written_as_in_the_language() -> None:
    assert verdict('"any name" = 1', {"any name": 2}) == 'failed: "any name" is 2, not 1'


def test_a_long_string_is_cut_in_a_reason() -> None:
    reason = explained("x = 'a'", {"x": "b" * 10_000}).reason
    assert reason == f"x is '{'b' * 48}…', not 'a'"


# ── what would have to change ───────────────────────────────────────────────────────


def in_the_way(predicate: str, event: dict[str, Any]) -> list[str]:
    return [f"{part.text}: {part.outcome}" for part in explained(predicate, event).failed]


def test_nothing_is_in_the_way_of_a_match() -> None:
    assert in_the_way("a = 1 OR b = 2", {"a": 1}) == []


def test_the_constraints_in_the_way_are_those_that_did_not_hold() -> None:
    event = {"area": "north", "temp": 25}
    assert in_the_way("area = 'north' AND temp > 30 AND wind > 20", event) == [
        "temp > 30: failed",
        "wind > 20: unknown",
    ]


def test_of_an_or_every_alternative_is_in_the_way() -> None:
    assert in_the_way("a = 1 AND b = 1 OR c = 1", {"a": 1, "b": 2}) == [
        "b = 1: failed",
        "c = 1: unknown",
    ]


def test_what_held_inside_a_not_is_in_the_way_negated() -> None:
    assert in_the_way("NOT (a = 1 AND b = 1)", {"a": 1, "b": 1}) == [
        "NOT a = 1: failed",
        "NOT b = 1: failed",
    ]
    assert in_the_way("NOT (a = 1 OR NOT b = 1)", {"a": 1, "b": 2}) == [
        "NOT a = 1: failed",
        "b = 1: failed",
    ]
    assert in_the_way("x NOT IN (1, 2)", {"x": 1}) == ["x NOT IN (1, 2): failed"]


# ── forms ───────────────────────────────────────────────────────────────────────────


def test_the_text_is_an_indented_tree() -> None:
    event = {"area": "north", "temp": 25, "x": 1}
    found = explained("area = 'north' AND (temp > 30 OR wind > 20) AND x NOT IN (1, 2)", event)
    assert str(found) == (
        "✗ area = 'north' AND (temp > 30 OR wind > 20) AND x NOT IN (1, 2): "
        "2 of 3 parts did not hold\n"
        "  ✓ area = 'north': area is 'north'\n"
        "  ? temp > 30 OR wind > 20: none of 2 parts held\n"
        "    ✗ temp > 30: temp is 25, not above 30\n"
        "    ? wind > 20: wind is missing\n"
        "  ✗ x NOT IN (1, 2): x is 1, one of 1, 2"
    )
    assert repr(found).startswith("<Explanation: area = 'north' AND")


def test_the_data_is_json() -> None:
    found = explained("a = 1 AND NOT b = 2", {"a": 1, "b": math.nan})
    assert json.loads(json.dumps(found.to_dict())) == {
        "text": "a = 1 AND NOT b = 2",
        "outcome": "unknown",
        "reason": "1 of 2 parts did not hold",
        "parts": [
            {"text": "a = 1", "outcome": "held", "reason": "a is 1"},
            {
                "text": "NOT b = 2",
                "outcome": "unknown",
                "reason": "b is NaN, which compares with nothing",
                "parts": [
                    {
                        "text": "b = 2",
                        "outcome": "unknown",
                        "reason": "b is NaN, which compares with nothing",
                    }
                ],
            },
        ],
    }


def test_wide_predicates_are_cut_in_the_text_and_whole_in_the_data() -> None:
    wide = Or(tuple(Compare("x", "=", n) for n in range(10_000)))
    found = explain(wide, {"x": 7_777})
    lines = str(found).splitlines()
    assert found.matched
    assert len(lines) == 22
    assert "  ✓ x = 7777: x is 7777" in lines  # what decided is not cut away
    assert lines[-1] == "  … 9,980 more: 9,980 failed"
    assert len(lines[0]) < 120
    assert len(found.to_dict()["parts"]) == 10_000
    assert len(explain(wide, {"x": -1}).failed) == 10_000

    found = explained(f"x IN ({', '.join(map(str, range(4_000)))})", {"x": -1})
    assert found.reason == "x is -1, not one of the 4,000 values"
    assert len(str(found)) < 150
    assert found.to_dict()["text"].endswith("3999)")


def test_a_text_has_an_end_however_bushy_the_predicate() -> None:
    node: Node = Compare("x", "=", 1)
    for kind in (And, Or, And):
        node = kind((node,) * 15)
    lines = str(explain(node, {})).splitlines()
    assert len(lines) == 201
    assert lines[-1].startswith("… and more")


def test_a_line_break_in_a_string_does_not_break_the_line() -> None:
    assert str(explained("x = 'a\nb'", {"x": "c\nd"})) == r"✗ x = 'a\nb': x is 'c\nd', not 'a\nb'"


def test_a_deep_predicate_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    truth = oracle.truth
    monkeypatch.setattr(oracle, "truth", lambda *args: calls.append(args) or truth(*args))
    text = "NOT " * 198 + "(" + " OR ".join(f"x = {n}" for n in range(1_000)) + ")"
    assert explained(text, {"x": 1}).matched
    assert len(calls) < 3_000


# ── events ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "value",
    [
        np.int64(5),
        np.float64(5),
        np.datetime64("1970-01-01T00:00:00.000005"),
        datetime.datetime(1970, 1, 1, microsecond=5),
    ],
)
def test_every_value_that_a_matcher_takes_is_taken(value: object) -> None:
    assert explained("x = 5", {"x": value}).matched


@pytest.mark.parametrize(
    ("event", "at", "space"),
    [
        ({"x": 2**64}, None, "plane"),
        ({"x": [1]}, None, "plane"),
        ({"x": "\ud800"}, None, "plane"),
        ([], None, "plane"),
        ({}, (1,), "plane"),
        ({}, ("a", 1), "plane"),
        ({}, (400, 0), "earth"),
        ({}, (0, 0), "moon"),
    ],
)
def test_what_a_matcher_refuses_is_refused_with_the_same_error(
    event: Any, at: Any, space: str
) -> None:
    def match() -> None:
        matcher = tamis.Matcher(space=space)
        matcher.subscribe(0, "x = 5")
        matcher.match(event, at=at)

    with pytest.raises(tamis.TamisError) as refused:
        match()
    with pytest.raises(type(refused.value)) as found:
        explained("x = 5", event, at, space)
    assert str(found.value) == str(refused.value)


def test_a_text_is_no_tree() -> None:
    with pytest.raises(TypeError, match=r"node must be a tree of tamis\.parse, not a str"):
        explain("x = 5", {})  # type: ignore[arg-type]


# ── agreement ───────────────────────────────────────────────────────────────────────

SCENES = {
    space: strategies.scenes(space, max_predicates=4, max_events=3) for space in ("plane", "earth")
}


@given(st.data(), st.sampled_from(("plane", "earth")))
def test_an_explanation_agrees_with_the_matcher(data: st.DataObject, space: str) -> None:
    predicates, events = data.draw(SCENES[space])
    matcher = tamis.Matcher(space=space, threads=1)
    for id, predicate in enumerate(predicates):
        matcher.subscribe(id, predicate)
    for event in events:
        matched = matcher.match(event.attributes, at=event.at)
        for id in matcher:
            found = explain(parse(matcher[id]), event.attributes, event.at, space)
            assert found.matched == (id in matched)
            check_tree(found, event, space)
            assert bool(found.failed) != found.matched


def check_tree(found: Explanation, event: Event, space: str) -> None:
    """Every part says what the oracle says, has words, and prints."""
    outcomes = {True: "held", False: "failed", None: "unknown"}
    assert found.outcome == outcomes[oracle.truth(found.node, event.attributes, event.at, space)]
    assert found.reason
    assert len(str(found).splitlines()) <= 201
    json.dumps(found.to_dict(), allow_nan=False)
    for part in found.parts:
        check_tree(part, event, space)
    for part in found.failed:
        assert oracle.truth(part.node, event.attributes, event.at, space) is not True
        leaf = part.node.part if isinstance(part.node, Not) else part.node
        assert not leaf.children()
