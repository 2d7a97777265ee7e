"""Eight threads match while two change: every answer is that of a state that existed, and of one
between the states before and after the call.

A writer counts in Gray code. Each of its states is a number, and the groups of subscriptions that
match are the ones of that number's code; the next state differs in one group, which one call
changes as a whole. So an answer tells which state of each writer it saw.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tamis

ENGINES = [
    "auto",
    *(each.name for each in tamis.engines() if each.available and each.exact),
]
# These may follow moves in place: each subscription moves at once, several do not.
MOVES_IN_PLACE = ("auto", "spatial-grid")
N_READERS = 8
N_BITS = 12
N_STATES = 1 << N_BITS
GROUP = 5  # subscriptions that change together
N_IDLE = 1500  # that never match, so that a merge has something to do
SECONDS = 1.0


@pytest.fixture(autouse=True)
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


def gray(state: int) -> int:
    return state ^ (state >> 1)


def state_of(code: int) -> int:
    state = 0
    while code:
        state ^= code
        code >>= 1
    return state


class Writer:
    """Counts up; `begun` and `done` are the states that the newest call makes and has made."""

    def __init__(self, name: str, matcher: tamis.Matcher, ways: list[str]) -> None:
        self.name, self.matcher = name, matcher
        self.begun = self.done = 0
        # The lowest bits change most: all ways of changing have their share of them.
        self.way = [ways[bit % len(ways)] for bit in range(N_BITS)]
        for bit in range(N_BITS):
            if self.way[bit] != "live":
                self.put(bit, False)

    def ids(self, bit: int) -> list[str]:
        return [f"{self.name}/{bit}/{number}" for number in range(GROUP)]

    def table(self, bit: int, predicate: str) -> dict[str, Any]:
        return {
            "id": self.ids(bit),
            "predicate": [predicate] * GROUP,
            "subscriber": [f"{self.name}/{bit}"] * GROUP,
        }

    def put(self, bit: int, is_on: bool) -> None:
        match self.way[bit]:
            case "live":
                if is_on:
                    self.matcher.subscribe_many(self.table(bit, "x = 1 OR x IS NULL"))
                else:
                    self.matcher.unsubscribe_many(self.ids(bit))
            case "replaced":
                self.matcher.subscribe_many(self.table(bit, "x = 1" if is_on else "x = 2"))
            case "moved" if self.ids(bit)[0] in self.matcher:
                place = 0.0 if is_on else 50.0
                self.matcher.move_many(
                    {"id": self.ids(bit), "x": [place] * GROUP, "y": [0.0] * GROUP}
                )
            case "moved":
                self.matcher.subscribe_many(self.table(bit, "x > 0 AND NEAR(50, 0, 10)"))

    def step(self) -> None:
        state = self.done + 1
        bit = (gray(state) ^ gray(state - 1)).bit_length() - 1
        self.begun = state
        self.put(bit, bool(gray(state) >> bit & 1))
        self.done = state

    def state_seen(self, ids: set[str]) -> int:
        """By subscriptions. A group that is seen in part is no state."""
        code = 0
        for bit in range(N_BITS):
            n_seen = len(ids.intersection(self.ids(bit)))
            assert n_seen in (0, GROUP), f"{n_seen} of the {GROUP} of {self.name}/{bit}"
            code |= bool(n_seen) << bit
        return state_of(code)

    def state_of_subscribers(self, ids: set[str]) -> int:
        return state_of(sum((f"{self.name}/{bit}" in ids) << bit for bit in range(N_BITS)))


def read(matcher: tamis.Matcher, writers: list[Writer], turn: int) -> None:
    """One call of some kind, and the check of its answer."""
    deliver = ("subscriptions", "subscribers")[turn % 2]
    kind = turn // 2 % 4
    before = [writer.done for writer in writers]
    answers: list[list[str]] = []
    counts: list[int] = []
    if kind == 0:
        answers = [matcher.match({"x": 1}, at=(0.0, 0.0), deliver=deliver)]
    else:
        events = [{"x": 1, "px": 0.0, "py": 0.0}] * 3
        output = ("ids", "bitset", "count")[kind - 1]
        result = matcher.match_many(events, position=("px", "py"), deliver=deliver, output=output)
        counts = result.counts.tolist()
        if output != "count":
            answers = [list(ids) for ids in result]
    after = [writer.begun for writer in writers]

    assert len(set(counts)) <= 1, "one call saw two states"
    seen = []
    for ids in answers:
        assert len(ids) == len(set(ids)), "an id came out twice"
        found = set(ids)
        seen.append(
            [
                writer.state_of_subscribers(found)
                if deliver == "subscribers"
                else writer.state_seen(found)
                for writer in writers
            ]
        )
    assert all(each == seen[0] for each in seen), "one call saw two states"
    for states in seen[:1]:
        for low, state, high in zip(before, states, after, strict=True):
            assert low <= state <= high, f"saw {state}, which is not from {low} to {high}"
    if not answers:  # a count cannot tell which state it was, but that it was one of them
        size = 1 if deliver == "subscribers" else GROUP
        possible = [
            {gray(state).bit_count() * size for state in range(low, high + 1)}
            for low, high in zip(before, after, strict=True)
        ]
        assert counts[0] in {sum(pair) for pair in itertools.product(*possible)}


def run_all(
    engine: str, matcher: tamis.Matcher, disturb: Callable[[int], None], seconds: float
) -> list[Writer]:
    """Readers and writers until the time is over; `disturb` again and again in one more thread."""
    matcher.subscribe_many(
        {
            "id": [f"idle {number}" for number in range(N_IDLE)],
            "predicate": [f"x = {number + 5} AND y = 1" for number in range(N_IDLE)],
        }
    )
    ways = ["live", "replaced"] if engine in MOVES_IN_PLACE else ["live", "replaced", "moved"]
    writers = [Writer(name, matcher, ways) for name in ("a", "b")]
    is_over = threading.Event()
    errors: list[BaseException] = []
    n_reads = [0] * N_READERS

    def repeat(act: Callable[[int], None]) -> None:
        try:
            for turn in itertools.count():
                if is_over.is_set():
                    return
                act(turn)
        except BaseException as error:
            errors.append(error)
            is_over.set()

    def reader(number: int) -> Callable[[int], None]:
        def act(turn: int) -> None:
            read(matcher, writers, turn + number)
            n_reads[number] += 1

        return act

    def writer(own: Writer) -> Callable[[int], None]:
        def act(turn: int) -> None:
            if own.done + 1 < N_STATES:
                own.step()
            if turn % 40 == 39:  # enough for a segment of its own, and it dies the next time
                rows = [f"filler {own.name} {number}" for number in range(100)]
                matcher.subscribe_many({"id": rows, "predicate": [f"x = {turn + 9}"] * 100})

        return act

    acts = [reader(number) for number in range(N_READERS)]
    acts += [writer(each) for each in writers]
    acts.append(disturb)
    threads = [threading.Thread(target=repeat, args=(act,), daemon=True) for act in acts]
    for thread in threads:
        thread.start()
    is_over.wait(seconds)
    is_over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]
    assert all(n_reads)
    for each in writers:
        assert each.done > 0
        assert each.begun == each.done
    read(matcher, writers, 0)
    read(matcher, writers, 1)
    return writers


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_of_states_that_existed(engine: str) -> None:
    matcher = tamis.Matcher(engine=engine, threads=2)
    run_all(engine, matcher, lambda _: matcher.flush(), SECONDS)
    assert matcher.stats()["n_merges"] > 3


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_of_states_that_existed_beside_checkpoints_and_saves(
    tmp_path: Path, engine: str
) -> None:
    """And what was saved is a state as well; and what is opened again, the last one."""
    matcher = tamis.Matcher.open(
        tmp_path / "m", create=True, engine=engine, threads=2, sync="grouped"
    )
    saved: list[Path] = []

    def disturb(turn: int) -> None:
        if turn % 4 != 3:
            matcher.checkpoint()
        elif len(saved) < 3:
            path = tmp_path / f"saved {turn}"
            matcher.save(path)
            saved.append(path)
        else:
            matcher.flush()
            time.sleep(0.001)

    writers = run_all(engine, matcher, disturb, SECONDS)
    assert matcher.stats()["checkpoint_error"] == ""
    matcher.close()
    with tamis.Matcher.open(tmp_path / "m", engine=engine, verify=True) as again:
        read(again, writers, 0)
        read(again, writers, 1)
    for path in saved:
        with tamis.Matcher.open(path, engine=engine, read_only=True, verify=True) as each:
            found = set(each.match({"x": 1}, at=(0.0, 0.0)))
            for writer in writers:
                assert 0 <= writer.state_seen(found) <= writer.done


@pytest.mark.parametrize("engine", ENGINES)
def test_a_match_sees_an_area_at_its_old_place_or_at_its_new_one(engine: str) -> None:
    """Never at neither, never twice: the event lies in both."""
    ids = list(range(GROUP))
    matcher = tamis.Matcher(engine=engine, threads=1)
    matcher.subscribe_many(
        {
            "id": list(range(N_IDLE)),
            "predicate": ["x = 1 AND NEAR(0, 0, 10)" for _ in ids]
            + [f"x = 1 AND NEAR({100 + number}, 0, 1)" for number in range(GROUP, N_IDLE)],
        }
    )
    matcher.flush()
    is_over = threading.Event()
    errors: list[BaseException] = []

    def repeat(act: Callable[[int], None]) -> None:
        try:
            for turn in itertools.count():
                if is_over.is_set():
                    return
                act(turn)
        except BaseException as error:
            errors.append(error)
            is_over.set()

    def move(turn: int) -> None:
        x = 5.0 * (turn % 2)
        matcher.move_many({"id": ids, "x": [x] * GROUP, "y": [0.0] * GROUP})
        matcher.move(ids[0], x, 1.0)
        if turn % 50 == 49:
            matcher.flush()

    def look(_: int) -> None:
        assert sorted(matcher.match({"x": 1}, at=(2.0, 0.0))) == ids

    threads = [threading.Thread(target=repeat, args=(act,)) for act in (move, look, look, look)]
    for thread in threads:
        thread.start()
    is_over.wait(SECONDS)
    is_over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if engine == "spatial-grid":
        assert matcher.stats()["n_moved"] > 0
