"""Matching while subscriptions change, against the same after flush."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tamis.bench.check import position_of, to_dicts
from tamis.bench.live.figure import Figure
from tamis.bench.live.job import (
    MAX_SAMPLES,
    NEW_IDS,
    Job,
    check_equal,
    result,
    wall_per_unit,
    window,
)
from tamis.bench.measure import Lap
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

CHURN_CHANGES_A_SECOND = 1000
CHURN_ROUNDS = 3
CHURN_SECONDS = 0.25  # of a window
CHURN_TOMBSTONES = 0.01
CHURN_BATCH = 64
# Parts of 320 : 18 : 1 stay segments of their own, since flush joins what is at most 16 times
# larger; until the delta that is full is merged too, and then all may become one.
CHURN_PARTS = (320, 18, 1)

FIGURES = {
    "single": Figure("match of a dict during change / after flush, wall time", "ratio", at_most=2),
    "batch": Figure(
        f"batches of {CHURN_BATCH} encoded events during change / after flush, wall time",
        "ratio",
        at_most=2,
    ),
    "single cpu": Figure("the same, CPU time of the matching thread", "ratio"),
    "batch cpu": Figure("the same, CPU time of the matching thread", "ratio"),
    "batch fresh": Figure("batches during change / in one new segment, wall time", "ratio"),
    "changes": Figure("changes made meanwhile", "1/s"),
}


class Changer:
    """Changes a matcher at a steady rate from a thread: a new subscription, then one that goes.

    What is late is made up for, so the rate holds where the interpreter lets it.
    """

    def __init__(self, matcher: Matcher, texts: list[str], first_id: int) -> None:
        self._matcher = matcher
        self._texts = texts
        self.next_id = first_id
        self.n_changes = 0
        self.error: Exception | None = None
        self._is_over = threading.Event()

    def __enter__(self) -> Changer:
        self._is_over.clear()
        self._begin = time.perf_counter()
        self._n_before = self.n_changes
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self.rate = (self.n_changes - self._n_before) / (time.perf_counter() - self._begin)
        if self.error:
            raise self.error

    def add(self) -> None:
        self._matcher.subscribe(self.next_id, self._texts[self.next_id % len(self._texts)])
        self.next_id += 1

    def _run(self) -> None:
        interval = 1 / CHURN_CHANGES_A_SECOND
        due, n_done = time.perf_counter(), 0
        try:
            while not self._is_over.is_set():
                while due <= time.perf_counter():
                    if n_done % 2:
                        self._matcher.unsubscribe(self.next_id - 1)
                    else:
                        self.add()
                    n_done += 1
                    due += interval
                time.sleep(max(0.0, due - time.perf_counter()))
        except Exception as error:  # raised again where the context ends
            self.error = error
        self.n_changes += n_done


def churn(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Windows of matching during changes, then as many after flush.

    The matcher gets three segments and a full delta in this order: single subscriptions until the
    delta has its greatest size; parts in sizes that do not merge, each flushed; the tombstones; and
    single subscriptions until what the windows will add fills the delta.
    """
    job = Job(spec, channel)
    table, texts = job.table(), job.texts(MAX_SAMPLES)
    seconds = min(CHURN_SECONDS, job.seconds / 24)
    matcher = job.matcher()
    changer = Changer(matcher, texts, NEW_IDS)
    capacity = _grow_delta(matcher, changer)
    matcher.flush()
    done = 0
    for place, _ in enumerate(CHURN_PARTS):
        end = job.n * sum(CHURN_PARTS[: place + 1]) // sum(CHURN_PARTS)
        job.say(f"loading {end:,} of {job.n:,}")
        matcher.subscribe_many(table.slice(done, end - done))
        matcher.flush()
        done = end
    gone = np.random.default_rng(1).permutation(job.n)[: int(job.n * CHURN_TOMBSTONES)]
    matcher.unsubscribe_many(gone.tolist())

    events = job.events(job.cell.n_events)
    position = job.workload.position
    dicts = [(event, position_of(event, position)) for event in to_dicts(events)]

    def single() -> Iterator[int]:
        while True:
            for event, at in dicts:
                matcher.match(event, at=at)
                yield 1

    def batch_of(which: Matcher) -> Callable[[], Iterator[int]]:
        batches = [
            which.encode(events.slice(at, CHURN_BATCH), position=position)
            for at in range(0, len(events), CHURN_BATCH)
        ]

        def batch() -> Iterator[int]:
            while True:
                for each in batches:
                    which._match_batch(each, "subscriptions", "ids")
                    yield len(each)

        return batch

    ways: dict[str, Callable[[], Iterator[int]]] = {"single": single, "batch": batch_of(matcher)}
    windows: dict[str, list[Lap]] = {}
    rates: list[float] = []
    states: list[dict[str, Any]] = []
    # Half of the changes add; windows end late, by up to a batch.
    room = CHURN_CHANGES_A_SECOND / 2 * seconds * CHURN_ROUNDS * len(ways) * 1.5
    _fill_delta(matcher, changer, capacity - min(capacity // 2, int(room)))
    for place, (name, way) in enumerate([*ways.items()] * CHURN_ROUNDS):
        job.say(f"during change, window {place + 1} of {CHURN_ROUNDS * len(ways)}")
        states.append(_state(matcher))
        with changer:
            lap = window(way, seconds)
        rates.append(changer.rate)
        states[-1]["after"] = _state(matcher)
        windows.setdefault(f"{name} changing", []).append(lap)
    matcher.flush()
    for name, way in [*ways.items()] * CHURN_ROUNDS:
        job.say("after flush")
        windows.setdefault(f"{name} quiet", []).append(window(way, seconds))
    quiet = _state(matcher)
    job.say("comparing with a new matcher")
    fresh = job.matcher()
    ids = list(matcher)
    fresh.subscribe_many({"id": ids, "predicate": [matcher[id] for id in ids]})
    fresh.flush()
    check_equal(matcher, fresh, events, position)
    way = batch_of(fresh)
    windows["batch fresh"] = [window(way, seconds) for _ in range(CHURN_ROUNDS)]

    laps = {name: min(each, key=wall_per_unit) for name, each in windows.items()}
    figures = {
        name: wall_per_unit(laps[f"{name} changing"]) / wall_per_unit(laps[f"{name} quiet"])
        for name in ways
    }
    for name in ways:
        changing, still = laps[f"{name} changing"], laps[f"{name} quiet"]
        figures[f"{name} cpu"] = changing.details["thread_ns"] / still.details["thread_ns"]
    figures["batch fresh"] = wall_per_unit(laps["batch changing"]) / wall_per_unit(
        laps["batch fresh"]
    )
    figures["changes"] = min(rates)
    details = {
        "delta_capacity": capacity,
        "states": states,
        "quiet": quiet,
        "n_tombstones": len(gone),
        "stats": matcher.stats(),
    }
    return result(laps, figures, details)


def _grow_delta(matcher: Matcher, changer: Changer) -> int:
    """Subscribes until the delta was merged twice at about the same size, and gives that size.

    A delta begins small, and is merged when it is full, or when it is large and nothing else is.
    """
    most, before, last = 0, -1, 0
    for _ in range(100_000):
        changer.add()
        n_filters = matcher.stats()["n_delta_filters"]
        if n_filters < last:  # it was sealed
            if most <= before * 5 // 4:
                return min(most, before)
            before, most = most, 0
        most, last = max(most, n_filters), n_filters
    return most


def _fill_delta(matcher: Matcher, changer: Changer, n_filters: int) -> None:
    for _ in range(4 * n_filters):
        if n_filters <= matcher.stats()["n_delta_filters"]:
            return
        changer.add()


def _state(matcher: Matcher) -> dict[str, Any]:
    stats = matcher.stats()
    return {
        "segments": [each["n_filters"] for each in stats["segments"]],
        "n_delta_filters": stats["n_delta_filters"],
        "n_dead": stats["n_dead"],
        "n_merges": stats["n_merges"],
    }
