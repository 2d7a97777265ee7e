"""Every hand-written case against the oracle and against every exact engine available here."""

from __future__ import annotations

from pathlib import Path

import pytest

import tamis
from tamis.testing import Case, load_cases, matches

CASES = load_cases(Path(__file__).parent / "cases")
VALID = [case for case in CASES if not case.is_invalid]
INVALID = [case for case in CASES if case.is_invalid]
# "auto" is a choice, not an engine of its own, so the table may or may not list it.
ENGINES = list(
    dict.fromkeys(
        ["auto", *(engine.name for engine in tamis.engines() if engine.available and engine.exact)]
    )
)


def matcher_of(case: Case, engine: str) -> tamis.Matcher:
    matcher = tamis.Matcher(engine=engine, space=case.space)
    for subscription_id, text in case.predicates.items():
        matcher.subscribe(subscription_id, text)
    return matcher


def each_once(ids: list[str]) -> set[str]:
    assert len(ids) == len(set(ids)), f"an id came out twice: {ids}"
    return set(ids)


def test_there_are_cases_of_both_kinds() -> None:
    assert len(VALID) >= 170
    assert len(INVALID) >= 50


@pytest.mark.parametrize("case", VALID, ids=str)
def test_the_oracle_gives_the_expected_answer(case: Case) -> None:
    trees = {
        subscription_id: tamis.parse(text) for subscription_id, text in case.predicates.items()
    }
    for event, expected in case.events:
        found = {
            subscription_id
            for subscription_id, tree in trees.items()
            if matches(tree, event.attributes, event.at, case.space)
        }
        assert found == expected, event


@pytest.mark.parametrize("case", VALID, ids=str)
def test_the_printed_tree_is_the_same_predicate(case: Case) -> None:
    for text in case.predicates.values():
        tree = tamis.parse(text)
        again = tamis.parse(str(tree))
        assert again == tree
        assert repr(again) == repr(tree)  # 1, 1.0 and True are equal to Python


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", VALID, ids=str)
def test_engines_give_the_expected_answer(case: Case, engine: str) -> None:
    matcher = matcher_of(case, engine)
    for event, expected in case.events:
        assert each_once(matcher.match(event.attributes, at=event.at)) == expected, event


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "case", [case for case in VALID if all(event.at is None for event, _ in case.events)], ids=str
)
def test_engines_give_the_expected_answer_in_a_batch(case: Case, engine: str) -> None:
    result = matcher_of(case, engine).match_many([event.attributes for event, _ in case.events])
    offsets = list(result.offsets)
    ids = result.ids.tolist()
    assert len(offsets) == len(case.events) + 1
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    for place, (event, expected) in enumerate(case.events):
        assert each_once(ids[offsets[place] : offsets[place + 1]]) == expected, event


@pytest.mark.parametrize("case", INVALID, ids=str)
def test_malformed_text_is_refused_with_its_place(case: Case) -> None:
    (text,) = case.predicates.values()
    with pytest.raises(tamis.LanguageError) as caught:
        tamis.parse(text)
    assert caught.value.text == text
    assert 0 <= caught.value.offset <= len(text)
    if case.offset is not None:
        assert caught.value.offset == case.offset
    if text:  # an empty text has no place to show
        assert str(caught.value).endswith("^")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", INVALID, ids=str)
def test_malformed_text_leaves_the_matcher_as_it_was(case: Case, engine: str) -> None:
    matcher = tamis.Matcher(engine=engine)
    matcher.subscribe("s", "x = 1")
    (text,) = case.predicates.values()
    with pytest.raises(tamis.LanguageError):
        matcher.subscribe("t", text)
    with pytest.raises(tamis.LanguageError):
        matcher.subscribe("s", text)
    assert matcher.match({"x": 1}) == ["s"]
