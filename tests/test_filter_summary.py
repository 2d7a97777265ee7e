"""What a matcher's filters ask of events, all in all: it may ask too little, never too much."""

from __future__ import annotations

import math

from tamis import Matcher


def summary(*predicates: str, space: str = "plane") -> dict:
    matcher = Matcher(space=space)
    matcher.subscribe_many({"id": list(range(len(predicates))), "predicate": list(predicates)})
    return matcher._summary()


def test_an_attribute_that_all_filters_need_has_the_range_they_accept() -> None:
    found = summary("a > 3 AND a <= 9 AND b = 'x'", "a IN (20, 30) OR a = 1")
    assert found["n_filters"] == found["attributes"]["a"]["n_needing"]
    assert (found["attributes"]["a"]["low"], found["attributes"]["a"]["high"]) == (1, 30)
    assert found["attributes"]["b"]["n_needing"] == 1


def test_what_may_be_missing_is_not_needed() -> None:
    found = summary("a > 1 OR b > 1", "a IS NULL", "NOT EXISTS a AND b = 1")
    assert found["n_filters"] == 4
    assert found["attributes"]["a"]["n_needing"] == 1
    assert found["attributes"]["b"]["n_needing"] == 2


def test_kinds_are_those_that_some_constraint_accepts() -> None:
    found = summary("a > 1", "b = 'x' AND c LIKE '%z'", "d != TRUE", "EXISTS e", "f IS NULL")
    kinds = {
        name: {kind for kind in ("numbers", "strings", "booleans") if each[kind]}
        for name, each in found["attributes"].items()
    }
    assert kinds == {
        "a": {"numbers"},
        "b": {"strings"},
        "c": {"strings"},
        "d": {"booleans"},
        "e": {"numbers", "strings", "booleans"},
        "f": set(),
    }


def test_the_box_is_around_the_circles() -> None:
    found = summary("NEAR(1, 2, 3)", "NEAR(10, -5, 1) AND a = 1")
    assert found["n_with_area"] == found["n_filters"] == 2
    assert found["box"] == (-2, -6, 11, 5)
    assert found["max_radius"] == 3


def test_a_circle_outside_of_which_an_event_may_lie_is_not_needed() -> None:
    found = summary("NOT NEAR(1, 2, 3)", "NEAR(1, 2, 3) OR a = 1")
    assert found["n_with_area"] == 1
    assert found["n_filters"] == 3


def test_an_empty_matcher_asks_for_nothing() -> None:
    found = Matcher()._summary()
    assert found["n_filters"] == 0
    assert found["attributes"] == {}
    assert found["box"] == (math.inf, math.inf, -math.inf, -math.inf)


def test_changes_are_in_the_summary() -> None:
    matcher = Matcher()
    matcher.subscribe(1, "a = 1")
    matcher.subscribe(2, "a = 7")
    assert matcher._summary()["attributes"]["a"]["high"] == 7


def test_the_box_follows_areas_that_move() -> None:
    matcher = Matcher(engine="spatial-grid")
    matcher.subscribe_many({"id": [1, 2], "predicate": ["NEAR(1, 2, 3)", "NEAR(10, -5, 1)"]})
    matcher.flush()
    matcher.move(2, 100, 200)
    assert matcher.stats()["n_moved"] == 1
    assert matcher._summary()["box"] == (-2, -1, 101, 201)
