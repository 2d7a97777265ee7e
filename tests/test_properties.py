"""Random predicates and events: the language round-trips, and every engine equals the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

import tamis
from tamis.language import Node
from tamis.testing import Event, matches, strategies

ENGINES = list(
    dict.fromkeys(
        ["auto", *(engine.name for engine in tamis.engines() if engine.available and engine.exact)]
    )
)
each_engine = pytest.mark.parametrize("engine", ENGINES)

# Several copies of the events: more than one machine word and more than one block of them.
N_COPIES = 33
POSITION = ("position x", "position y")

Scene = tuple[list[Node], list[Event]]


def expected_ids(predicates: list[Node], event: Event, space: str = "plane") -> set[int]:
    return {
        idx
        for idx, predicate in enumerate(predicates)
        if matches(predicate, event.attributes, event.at, space)
    }


def matcher_of(
    predicates: list[Node], engine: str, space: str = "plane", n_subscribers: int = 0
) -> tamis.Matcher:
    """Subscriptions 0, 1, …; with subscribers, subscription i belongs to i modulo their number."""
    matcher = tamis.Matcher(engine=engine, space=space)
    for idx, predicate in enumerate(predicates):
        if n_subscribers:
            matcher.subscribe(idx, str(predicate), subscriber=idx % n_subscribers)
        else:
            matcher.subscribe(idx, str(predicate))
    return matcher


def each_once(ids: Iterable[Any]) -> set[Any]:
    found = list(ids)
    assert len(found) == len(set(found)), f"an id came out twice: {found}"
    return set(found)


def row_of(event: Event) -> dict[str, Any]:
    if event.at is None:
        return event.attributes
    return {**event.attributes, POSITION[0]: event.at[0], POSITION[1]: event.at[1]}


def parse_or_refuse(text: str) -> Node | tamis.LanguageError:
    try:
        return tamis.parse(text)
    except tamis.LanguageError as error:
        return error


@given(strategies.predicates(max_leaves=12))
def test_printed_predicates_parse_to_equal_trees(predicate: Node) -> None:
    text = str(predicate)
    again = tamis.parse(text)
    assert again == predicate
    assert repr(again) == repr(predicate)  # 1, 1.0 and True are equal to Python
    assert str(again) == text


@given(strategies.predicates(max_leaves=6, space="earth"))
def test_areas_on_earth_print_and_parse(predicate: Node) -> None:
    assert repr(tamis.parse(str(predicate))) == repr(predicate)


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    found = parse_or_refuse(text)
    assert isinstance(found, Node) or 0 <= found.offset <= len(text)


@given(strategies.predicates(max_leaves=4), st.data())
def test_damaged_predicates_parse_or_are_refused_with_a_place(
    predicate: Node, data: st.DataObject
) -> None:
    text = str(predicate)
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 6)))
    damaged = text[:begin] + data.draw(st.sampled_from(["", "(", "'", '"', " NOT ", "1", "é"]))
    damaged += text[end:]
    found = parse_or_refuse(damaged)
    if isinstance(found, Node):
        assert repr(tamis.parse(str(found))) == repr(found)
    else:
        assert 0 <= found.offset <= len(damaged)


@pytest.mark.parametrize("space", ["plane", "earth"])
@each_engine
def test_single_events_match_as_the_oracle_says(engine: str, space: str) -> None:
    @given(strategies.scenes(space))
    def check(scene: Scene) -> None:
        predicates, events = scene
        matcher = matcher_of(predicates, engine, space)
        for event in events:
            expected = expected_ids(predicates, event, space)
            note(f"matches: {bool(expected)}")
            assert each_once(matcher.match(event.attributes, at=event.at)) == expected

    check()


@pytest.mark.parametrize("space", ["plane", "earth"])
@each_engine
def test_batches_with_positions_match_as_the_oracle_says(engine: str, space: str) -> None:
    @given(strategies.scenes(space))
    def check(scene: Scene) -> None:
        predicates, events = scene
        expected = [expected_ids(predicates, event, space) for event in events]
        matcher = matcher_of(predicates, engine, space)
        result = matcher.match_many([row_of(event) for event in events], position=POSITION)
        assert [each_once(result.to_ids(idx)) for idx in range(len(events))] == expected

    check()


@pytest.mark.parametrize("deliver", ["subscriptions", "subscribers"])
@each_engine
def test_batches_match_as_the_oracle_says_in_every_output(engine: str, deliver: str) -> None:
    @given(strategies.scenes(None), st.integers(1, 3))
    def check(scene: Scene, n_subscribers: int) -> None:
        predicates, events = scene
        matcher = matcher_of(predicates, engine, n_subscribers=n_subscribers)
        expected = [expected_ids(predicates, event) for event in events]
        if deliver == "subscribers":
            expected = [{idx % n_subscribers for idx in ids} for ids in expected]
        rows = [event.attributes for event in events]
        for row, ids in zip(rows, expected, strict=True):
            _check_outputs(matcher, [row], [ids], deliver)
        _check_outputs(matcher, rows, expected, deliver)
        _check_outputs(matcher, rows * N_COPIES, expected * N_COPIES, deliver)

    check()


def _check_outputs(
    matcher: tamis.Matcher, rows: list[dict[str, Any]], expected: list[set[int]], deliver: str
) -> None:
    result = matcher.match_many(rows, deliver=deliver, output="ids")
    offsets, ids = list(result.offsets), result.ids.tolist()
    assert len(offsets) == len(rows) + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    found = [each_once(ids[begin:end]) for begin, end in itertools.pairwise(offsets)]
    assert found == expected
    assert [each_once(result.to_ids(idx)) for idx in range(len(rows))] == expected

    bitset = matcher.match_many(rows, deliver=deliver, output="bitset")
    assert [each_once(bitset.to_ids(idx)) for idx in range(len(rows))] == expected

    counts = matcher.match_many(rows, deliver=deliver, output="count").counts
    assert counts.dtype == np.int64
    assert counts.tolist() == [len(ids) for ids in expected]


@each_engine
def test_an_empty_batch_gives_an_empty_answer(engine: str) -> None:
    matcher = matcher_of([tamis.parse("TRUE")], engine)
    assert list(matcher.match_many([]).offsets) == [0]
    assert matcher.match_many([], output="count").counts.tolist() == []


@each_engine
def test_subscriptions_with_names_match_as_the_oracle_says(engine: str) -> None:
    @given(strategies.scenes(None, max_events=3))
    def check(scene: Scene) -> None:
        predicates, events = scene
        matcher = tamis.Matcher(engine=engine)
        for idx, predicate in enumerate(predicates):
            matcher.subscribe(f"s{idx}", str(predicate))
        for event in events:
            expected = {f"s{idx}" for idx in expected_ids(predicates, event)}
            assert each_once(matcher.match(event.attributes)) == expected

    check()


def test_numpy_scalars_mean_what_their_python_values_mean() -> None:
    @given(strategies.scenes(None))
    def check(scene: Scene) -> None:
        predicates, events = scene
        matcher = matcher_of(predicates, "auto")
        for event in events:
            row = {name: _numpy_scalar(value) for name, value in event.attributes.items()}
            assert each_once(matcher.match(row)) == expected_ids(predicates, event)

    check()


def _numpy_scalar(value: object) -> object:
    makers: dict[type, Callable[[Any], object]] = {
        bool: np.bool_,
        int: lambda number: np.uint64(number) if number >= 2**63 else np.int64(number),
        float: np.float64,
    }
    return makers.get(type(value), lambda same: same)(value)


def test_events_do_match_and_miss() -> None:
    """The generators are worth something: neither answer is rare."""
    counts = {True: 0, False: 0}

    @given(strategies.scenes("plane"))
    def count(scene: Scene) -> None:
        predicates, events = scene
        for event in events:
            counts[bool(expected_ids(predicates, event))] += 1

    count()
    assert min(counts.values()) > 0.1 * sum(counts.values()), counts


@given(strategies.predicates(), st.data())
def test_the_oracle_never_fails_on_what_the_strategies_make(
    predicate: Node, data: st.DataObject
) -> None:
    event = data.draw(strategies.events(predicate))
    assert matches(predicate, *event) in (True, False)
    assert event.at is None or not any(map(math.isinf, event.at))
