"""Random histories of a matcher of 50,000 subscriptions, through merges, images, crashes and
readers beside the writer, against a model that knows the answer without looking at all of them.

Every predicate has a key: it holds only where `bucket` is that number or `name` is 'n' and that
number. So the answer to an event is among the subscriptions of at most two keys, and the oracle is
asked about those, and about a few `wild` predicates that have none.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tamis
from tamis.language import Node
from tamis.testing import Event, matches

ENGINES = [
    "auto",
    *(each.name for each in tamis.engines() if each.available and each.exact),
]
POSITION = ("position x", "position y")
N_BASE = 50_000
N_KEYS = 5_000
N_OWNERS = 1_000
COLOURS = ["red", "rose", "blue"]
WILD = ["size > 9", "size IS NULL AND name IS NULL", "NEAR(0, 0, 1)", "colour LIKE '%e'", "FALSE"]

N_FORMS = 6


def text_of(key: int, form: int, number: int) -> str:
    match form:
        case 0:
            return f"bucket = {key}"
        case 1:
            return f"bucket = {key} AND size > {number % 7}"
        case 2:
            return f"bucket = {key} AND NEAR({number % 20}, {number % 11}, 5)"
        case 3:
            return f"name = 'n{key}' OR bucket = {key}"
        case 4:
            return f"bucket = {key} AND (colour LIKE 'r%' OR size IS NULL)"
        case _:
            return f"name = 'n{key}' AND NOT (size < {number % 7} OR colour = 'red')"


def row_of_base(number: int) -> tuple[int, str, int]:
    """Key, text and owner of a subscription of the base."""
    key = number % N_KEYS
    return key, text_of(key, number // N_KEYS % N_FORMS, number), number % N_OWNERS


@functools.lru_cache(20_000)
def tree_of(text: str) -> Node:
    return tamis.parse(text)


def each_once(ids: Iterable[Any]) -> set[Any]:
    listed = list(ids)
    assert len(listed) == len(set(listed)), "an id came out twice"
    return set(listed)


def copy_of(path: Path, to: Path) -> None:
    """What a crash now would leave. Images never change, so a second name is a copy."""

    def copy(source: str, target: str) -> None:
        (os.link if source.endswith(".tamis") else shutil.copy2)(source, target)

    shutil.copytree(path, to, copy_function=copy)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The 50,000, saved by each engine."""
    folder = tmp_path_factory.mktemp("bases")
    rows = [row_of_base(number) for number in range(N_BASE)]
    table = pa.table(
        {
            "id": list(range(N_BASE)),
            "predicate": [text for _, text, _ in rows],
            "subscriber": [owner for _, _, owner in rows],
        }
    )
    for engine in ENGINES:
        matcher = tamis.Matcher(engine=engine)
        matcher.subscribe_many(table)
        matcher.save(folder / engine)
    return {engine: folder / engine for engine in ENGINES}


IDS = st.one_of(st.integers(0, N_BASE + 50), st.integers(0, 30))
KEYS = st.one_of(st.integers(0, N_KEYS - 1), st.integers(0, 3))
OWNERS = st.one_of(st.none(), st.integers(0, N_OWNERS + 3))
FORMS = st.integers(0, N_FORMS - 1)
MANY = st.sampled_from([1, 40, 700, 5_000])


class LargeHistory(RuleBasedStateMachine):
    engine = "auto"
    base = Path()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tamis-large-", dir=self.base.parent))
        self.n_paths = 0
        self.path = self.new_path()
        copy_of(self.base, self.path)
        self.matcher = self.open(self.path)
        # id → key (none: wild), text, owner (none: itself)
        self.live: dict[int, tuple[int | None, str, int | None]] = {
            number: row_of_base(number) for number in range(N_BASE)
        }
        self.of_key: dict[int, set[int]] = defaultdict(set)  # those that were touched
        self.wild: set[int] = set()

    def teardown(self) -> None:
        self.matcher.close()
        shutil.rmtree(self.folder)

    def new_path(self) -> Path:
        self.n_paths += 1
        return self.folder / str(self.n_paths)

    def open(self, path: Path, **options: Any) -> tamis.Matcher:
        return tamis.Matcher.open(path, engine=self.engine, sync="none", **options)

    def put(self, number: int, key: int | None, text: str, owner: int | None) -> None:
        self.live[number] = (key, text, owner)
        self.wild.discard(number)
        if key is None:
            self.wild.add(number)
        else:
            self.of_key[key].add(number)

    def drop(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self.live[number]
            self.wild.discard(number)

    # changes

    @rule(number=IDS, key=KEYS, form=FORMS, owner=OWNERS)
    def subscribe(self, number: int, key: int, form: int, owner: int | None) -> None:
        text = text_of(key, form, number)
        self.matcher.subscribe(number, text, subscriber=owner)
        self.put(number, key, text, owner)

    @rule(number=IDS, text=st.sampled_from(WILD), owner=OWNERS)
    def subscribe_wild(self, number: int, text: str, owner: int | None) -> None:
        self.matcher.subscribe(number, text, subscriber=owner)
        self.put(number, None, text, owner)

    @rule(first=IDS, n_rows=MANY, step=st.sampled_from([1, 7]), shift=KEYS, form=FORMS)
    def subscribe_many(self, first: int, n_rows: int, step: int, shift: int, form: int) -> None:
        numbers = [(first + at * step) % (N_BASE + 2_000) for at in range(n_rows)]
        rows = [
            (number, (number + shift) % N_KEYS, text_of((number + shift) % N_KEYS, form, number))
            for number in numbers
        ]
        self.matcher.subscribe_many(
            {
                "id": numbers,
                "predicate": [text for _, _, text in rows],
                "subscriber": [(number + shift) % N_OWNERS for number in numbers],
            }
        )
        for number, key, text in rows:
            self.put(number, key, text, (number + shift) % N_OWNERS)

    @rule(first=IDS)
    def unsubscribe(self, first: int) -> None:
        number = next((each for each in range(first, first + 50) if each in self.live), None)
        if number is None:
            with pytest.raises(tamis.UnknownIdError):
                self.matcher.unsubscribe(first)
            return
        self.matcher.unsubscribe(number)
        self.drop([number])

    @rule(first=IDS, n_rows=MANY, step=st.sampled_from([1, 3]))
    def unsubscribe_many(self, first: int, n_rows: int, step: int) -> None:
        numbers = [
            number for number in range(first, first + n_rows * step, step) if number in self.live
        ]
        self.matcher.unsubscribe_many(numbers)
        self.drop(numbers)

    @precondition(lambda self: len(self.live) > 30_000)
    @rule()
    def unsubscribe_most(self) -> None:
        """So many that everything is merged anew, and nearly every slot is used again."""
        numbers = [number for number in self.live if number % 10 != 3]
        self.matcher.unsubscribe_many(numbers)
        self.drop(numbers)

    def placed_near(self, first: int, n_most: int) -> list[int]:
        found = []
        for number in range(first, first + 12_000):
            if number in self.live and "NEAR" in self.live[number][1]:
                found.append(number)
                if len(found) == n_most:
                    break
        return found

    def move_in_model(self, number: int, x: int, y: int) -> None:
        key, text, owner = self.live[number]
        radius = text[text.rindex(",") :]
        self.put(number, key, f"{text[: text.index('NEAR')]}NEAR({x}, {y}{radius}", owner)

    @rule(first=IDS, x=st.integers(0, 20), y=st.integers(0, 20))
    def move(self, first: int, x: int, y: int) -> None:
        for number in self.placed_near(first, 1):
            self.matcher.move(number, x, y)
            self.move_in_model(number, x, y)

    @rule(first=IDS, n_rows=st.sampled_from([2, 900]), x=st.integers(0, 20))
    def move_many(self, first: int, n_rows: int, x: int) -> None:
        numbers = self.placed_near(first, n_rows)
        places = [number % 20 for number in numbers]
        self.matcher.move_many(
            {"id": pa.array(numbers, pa.int64()), "x": [x] * len(numbers), "y": places}
        )
        for number, y in zip(numbers, places, strict=True):
            self.move_in_model(number, x, y)

    @rule(number=IDS)
    def refused(self, number: int) -> None:
        with pytest.raises(tamis.BatchError):
            self.matcher.subscribe_many({"id": [number, 1], "predicate": ["FALSE", "bucket ="]})
        with pytest.raises(tamis.UnknownIdError):
            self.matcher.unsubscribe_many([*list(self.live)[:5], 10**9])

    # what changes nothing that can be seen

    @rule()
    def flush(self) -> None:
        self.matcher.flush()
        stats = self.matcher.stats()
        assert all(segment["is_indexed"] for segment in stats["segments"])
        assert stats["n_delta_filters"] == 0

    @rule()
    def checkpoint(self) -> None:
        self.matcher.checkpoint()
        assert self.matcher.stats()["checkpoint_error"] == ""

    @rule(goes_on=st.booleans())
    def save(self, goes_on: bool) -> None:
        path = self.new_path()
        self.matcher.save(path)
        saved = self.open(path, verify=True)
        self.check_state(saved)
        if goes_on:
            self.matcher.close()
            self.matcher, self.path = saved, path
        else:
            self.check_answers(saved, [self.event(7, 8, 5, "red", (3, 3))])
            saved.close()
            shutil.rmtree(path)

    @rule()
    def crash(self) -> None:
        path = self.new_path()
        copy_of(self.path, path)
        self.matcher.close()
        shutil.rmtree(self.path)
        self.matcher, self.path = self.open(path), path
        self.check_state(self.matcher)

    @rule()
    def reopen(self) -> None:
        self.matcher.close()
        self.matcher = self.open(self.path)
        self.check_state(self.matcher)

    @rule(key=KEYS, verify=st.booleans())
    def read_beside(self, key: int, verify: bool) -> None:
        with self.open(self.path, read_only=True, verify=verify) as reader:
            self.check_state(reader)
            self.check_answers(reader, [self.event(key, None, 3, "rose", (5, 5))])
            with pytest.raises(tamis.ArgumentError, match="read_only=True"):
                reader.subscribe(1, "TRUE")

    # answers

    @staticmethod
    def event(
        key: int | None,
        name: int | None,
        size: int | None,
        colour: str | None,
        at: tuple[int, int] | None,
    ) -> Event:
        given = {"bucket": key, "name": name and f"n{name}", "size": size, "colour": colour}
        return Event({each: value for each, value in given.items() if value is not None}, at)

    def expected(self, event: Event) -> set[int]:
        keys = {event.attributes.get("bucket")}
        if "name" in event.attributes:
            keys.add(int(event.attributes["name"][1:]))
        near = set(self.wild)
        for key in keys - {None}:
            near |= self.of_key.get(key, set()) | set(range(key, N_BASE, N_KEYS))
        return {
            number
            for number in near
            if number in self.live
            and matches(tree_of(self.live[number][1]), event.attributes, event.at)
        }

    def check_answers(self, matcher: tamis.Matcher, sent: list[Event]) -> None:
        expected = [self.expected(event) for event in sent]
        owners = [
            {number if self.live[number][2] is None else self.live[number][2] for number in numbers}
            for numbers in expected
        ]
        rows = [
            {**event.attributes, **dict(zip(POSITION, event.at or (None, None), strict=True))}
            for event in sent
        ]
        for deliver, wanted in (("subscriptions", expected), ("subscribers", owners)):
            for event, ids in zip(sent, wanted, strict=True):
                found = matcher.match(event.attributes, at=event.at, deliver=deliver)
                assert each_once(found) == ids
            for output in ("ids", "bitset"):
                result = matcher.match_many(rows, position=POSITION, deliver=deliver, output=output)
                assert [each_once(ids) for ids in result] == wanted
            result = matcher.match_many(rows, position=POSITION, deliver=deliver, output="count")
            assert result.counts.tolist() == [len(ids) for ids in wanted]

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=3),
        name=st.one_of(st.none(), KEYS),
        size=st.one_of(st.none(), st.integers(0, 10)),
        colour=st.one_of(st.none(), st.sampled_from(COLOURS)),
        at=st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 20))),
    )
    def match(self, keys: list[int], **rest: Any) -> None:
        rest["name"] = rest["name"] or None
        self.check_answers(self.matcher, [self.event(key, **rest) for key in keys])

    @rule(
        touched=st.integers(0, 10**6),
        size=st.integers(0, 10),
        at=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    )
    def match_touched(self, touched: int, size: int, at: tuple[int, int]) -> None:
        """Events for what was changed, which the rule above would rarely hit."""
        keys = sorted(self.of_key)[touched % (len(self.of_key) + 1) :][:3] or [0]
        sent = [self.event(key, key or None, size, "rose", at) for key in keys]
        self.check_answers(self.matcher, sent)

    def check_state(self, matcher: tamis.Matcher) -> None:
        assert each_once(matcher) == self.live.keys()
        some = random.Random(len(self.live)).sample(sorted(self.live), min(len(self.live), 200))
        for number in (*some, *self.wild):
            assert tree_of(matcher[number]) == tree_of(self.live[number][1])

    @initialize()
    def begins_as_the_base(self) -> None:
        self.check_state(self.matcher)

    @invariant()
    def size_is_the_models(self) -> None:
        assert len(self.matcher) == len(self.live)


@pytest.mark.parametrize("engine", ENGINES)
def test_large_histories(bases: dict[str, Path], engine: str) -> None:
    machine = type(
        f"LargeHistory_{engine}", (LargeHistory,), {"engine": engine, "base": bases[engine]}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(3, settings().max_examples // 50),
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
