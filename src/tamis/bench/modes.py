"""What one repetition of each mode does.

A mode is prepared for a cell once and then called for each repetition; a call gives one `Lap` for
each of its series. Preparing (encoding events, making dicts) is never timed.

    mode         series          unit           what is timed
    latency      core            event          _match_batch of one encoded event
                 dict            event          match of a dict
                 call            event          as core, in a matcher without subscriptions
    throughput   encoded         event          _match_batch of encoded batches
                 arrow           event          encode from Arrow and _match_batch
    build        deployment      subscription   subscribe_many in chunks, flush (see subject.py)
    encode       dict, arrow-flat, arrow-map, json-lines          event
    parse        parse_many, subscribe_many                       predicate

The modes about the live matcher are in live/.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tamis import _core
from tamis._core import EventBatch
from tamis.bench.answers import MAX_CHUNK_IDS
from tamis.bench.check import position_of, to_dicts
from tamis.bench.measure import Lap, percentiles, timed
from tamis.bench.plan import Cell
from tamis.bench.subject import CHECKER, Subject
from tamis.matcher import Matcher

# As many as a matcher keeps of the events that it has seen.
SHOWN_EVENTS = 256
SHOWN_SECONDS = 3.0
# Before each repetition: the other engines' repetitions have emptied the caches.
WARM_UP_EVENTS = 16
WARM_UP_SECONDS = 0.05
# With the time limit in sight the first repetition may take this share of it.
FIRST_REPETITIONS = 3
MAX_BITSET_BYTES = 256 * 2**20

Step = Callable[[], dict[str, Lap]]
UNITS = {
    "build": "subscription",
    "latency": "event",
    "throughput": "event",
    "encode": "event",
    "parse": "predicate",
    "load": "subscription",
    "change": "change",
    "move": "move",
    "durable": "change",
    "open": "call",
    "call": "event",
    "churn": "event",
}


def first_repetition_seconds(repeat: int, max_seconds: float) -> float:
    """How long the first repetition may take, so that there can be some more."""
    return max_seconds / min(repeat, FIRST_REPETITIONS)


class Latency:
    """Single events, one after the other.

    Each repetition goes twice through the events: once with a clock around each call, for the
    percentiles, and once with a clock around all, for the time per event without the clock's own.
    The first repetition decides how many events fit the time limit.
    """

    def __init__(self, subject: Subject, cell: Cell, events: pa.Table, seconds: float) -> None:
        position = subject.workload.position
        events = events.slice(0, cell.n_events)
        self._cell = cell
        self._matcher = subject.matcher
        self._empty = subject.empty_matcher()
        self.n_measured = len(events)
        self._seconds = seconds / 4  # two passes for encoded events, two for dicts
        self._is_first = True
        self._singles = _encode_singles(self._matcher, events, position)
        self._empty_singles = _encode_singles(self._empty, events, position)
        dicts = to_dicts(events)
        self._dicts = [(event, position_of(event, position)) for event in dicts]

    def __call__(self) -> dict[str, Lap]:
        limit_ns = int(self._seconds * 1e9) if self._is_first else None
        core = self._core(self._matcher, self._singles, limit_ns)
        self._is_first = False
        self.n_measured = core.n
        return {
            "core": core,
            "dict": self._dict(),
            "call": self._core(self._empty, self._empty_singles, None),
        }

    def _core(self, matcher: Matcher, singles: list[EventBatch], limit_ns: int | None) -> Lap:
        match, deliver, output = matcher._match_batch, self._cell.deliver, self._cell.output
        now = time.perf_counter_ns
        singles = singles[: self.n_measured]
        _warm_up(lambda single: match(single, deliver, output), singles)
        laps = []
        with timed():
            end = now() + limit_ns if limit_ns is not None else 2**63
            for single in singles:
                begin = now()
                match(single, deliver, output)
                done = now()
                laps.append(done - begin)
                if done > end:
                    break
        singles = singles[: len(laps)]
        with timed() as watch:
            for single in singles:
                match(single, deliver, output)
        lap = watch.lap(len(singles))
        lap.details = percentiles(laps)
        return lap

    def _dict(self) -> Lap:
        match, deliver = self._matcher.match, self._cell.deliver
        now = time.perf_counter_ns
        dicts = self._dicts[: self.n_measured]
        laps = []
        with timed():
            for event, at in dicts:
                begin = now()
                match(event, at=at, deliver=deliver)
                laps.append(now() - begin)
        with timed() as watch:
            for event, at in dicts:
                match(event, at=at, deliver=deliver)
        lap = watch.lap(len(dicts))
        lap.details = percentiles(laps)
        return lap


class Throughput:
    """Batches of events: encoded beforehand, from Arrow, and from JSON lines.

    A batch is made smaller, and the file says so, where its answers would not fit memory or one
    batch not the time limit.
    """

    def __init__(self, subject: Subject, cell: Cell, events: pa.Table, seconds: float) -> None:
        answers = subject.answers
        usual = sum(answers.counts) / max(1, len(answers.counts))
        fitting = int(MAX_CHUNK_IDS / (usual + 1))
        if cell.output == "bitset":
            fitting = MAX_BITSET_BYTES * 8 // max(1, subject.workload.n_subscriptions)
        elif cell.output == "count":
            fitting = cell.batch
        self._position = subject.workload.position
        self._cell = cell
        self._matcher = subject.matcher
        self._warm_up = self._encode(events.slice(0, max(1, min(4 * WARM_UP_EVENTS, fitting))))
        # Answers were checked as ids, which may take longer than what is measured.
        with timed() as tried:
            self._matcher._match_batch(self._warm_up, cell.deliver, cell.output)
        ns_per_event = min(answers.ns_per_event, tried.wall_ns / max(1, len(self._warm_up)))
        # Three series share the time.
        n_fitting = int(seconds * 1e9 / 3 / max(1.0, ns_per_event))
        self.n_measured = max(1, min(cell.n_events, n_fitting))
        self.batch = max(1, min(cell.batch, fitting, self.n_measured))
        events = events.slice(0, self.n_measured)
        self._tables = [
            events.slice(first, self.batch) for first in range(0, len(events), self.batch)
        ]
        self._batches = [self._encode(table) for table in self._tables]
        self._lines = [lines for table in self._tables if (lines := _json_lines(table))]

    def __call__(self) -> dict[str, Lap]:
        match, deliver, output = self._matcher._match_batch, self._cell.deliver, self._cell.output
        match(self._warm_up, deliver, output)
        with timed() as encoded:
            for batch in self._batches:
                match(batch, deliver, output)
        with timed() as arrow:
            for table in self._tables:
                match(self._encode(table), deliver, output)
        laps = {"encoded": encoded.lap(self.n_measured), "arrow": arrow.lap(self.n_measured)}
        if len(self._lines) == len(self._tables):
            with timed() as from_json:
                for lines in self._lines:
                    batch, *_ = self._matcher._encode_json(
                        self._matcher._view(), lines, self._position, False
                    )
                    match(batch, deliver, output)
            laps["json"] = from_json.lap(self.n_measured)
        return laps

    def _encode(self, table: pa.Table) -> EventBatch:
        return self._matcher.encode(table, position=self._position)


class Encode:
    """The same events through every encoder: five integer attributes each."""

    def __init__(self, cell: Cell) -> None:
        workload = cell.make_workload()
        self.n_measured = cell.n_events
        self._matcher = Subject(workload, CHECKER).matcher
        maps = workload.events(cell.n_events).read_all().combine_chunks()
        dicts = to_dicts(maps)
        flat = pa.Table.from_pylist(dicts)
        lines = "\n".join(json.dumps(event) for event in dicts).encode()
        matcher = self._matcher
        self._encoders: dict[str, Callable[[], Any]] = {
            "dict": lambda: matcher.encode(dicts),
            "arrow-flat": lambda: matcher.encode(flat),
            "arrow-map": lambda: matcher.encode(maps),
            "json-lines": lambda: matcher._encode_json(matcher._view(), lines, None, False),
        }
        self._check()

    def _check(self) -> None:
        """All encoders must have found the same values, or there is nothing to compare."""
        batches = {
            name: batch[0] if isinstance(batch := encode(), tuple) else batch
            for name, encode in self._encoders.items()
        }
        found = {name: (len(batch), batch.n_values) for name, batch in batches.items()}
        if len(set(found.values())) != 1:
            raise RuntimeError(f"the encoders must give as many events and values, not {found}")
        self.n_values = batches["dict"].n_values

    def __call__(self) -> dict[str, Lap]:
        laps = {}
        for name, encode in self._encoders.items():
            with timed() as watch:
                encode()
            laps[name] = watch.lap(self.n_measured)
        return laps


class Parse:
    """Predicates as text: parsed only, and subscribed (by an engine without an index)."""

    def __init__(self, cell: Cell) -> None:
        self._workload = cell.make_workload()
        self._table = self._workload.subscriptions().read_all()
        self._texts: list[str] = self._table["predicate"].to_pylist()
        self.n_measured = len(self._texts)
        self.n_characters = sum(map(len, self._texts))
        self.n_nodes = int(_core.parse_many(self._texts))

    def __call__(self) -> dict[str, Lap]:
        with timed() as parsed:
            _core.parse_many(self._texts)
        matcher = Matcher(CHECKER, self._workload.space, 1)
        with timed() as subscribed:
            matcher.subscribe_many(self._table)
        return {
            "parse_many": parsed.lap(self.n_measured),
            "subscribe_many": subscribed.lap(self.n_measured),
        }


def _json_lines(events: pa.Table) -> bytes:
    """The events as JSON lines; nothing where JSON has no such values."""
    try:
        return "\n".join(json.dumps(event) for event in to_dicts(events)).encode()
    except TypeError:  # timestamps
        return b""


def _encode_singles(
    matcher: Matcher, events: pa.Table, position: tuple[str, str] | None
) -> list[EventBatch]:
    return [matcher.encode(events.slice(row, 1), position=position) for row in range(len(events))]


def show_singles(subject: Subject, events: pa.Table, deliver: str) -> None:
    """Lets `auto` see events as they will be measured, after it was checked with batches.

    It reckons with what was spent in about the last second of matching.
    """
    if subject.engine != "auto":
        return
    matcher = subject.matcher
    shown = events.slice(0, SHOWN_EVENTS)
    singles = _encode_singles(matcher, shown, subject.workload.position)
    end = time.perf_counter() + SHOWN_SECONDS
    while time.perf_counter() < end:
        for single in singles:
            matcher._match_batch(single, deliver, "ids")
            if time.perf_counter() > end:
                break


def _warm_up(match: Callable[[EventBatch], Any], singles: Sequence[EventBatch]) -> None:
    end = time.perf_counter() + WARM_UP_SECONDS
    for single in singles[:WARM_UP_EVENTS]:
        match(single)
        if time.perf_counter() > end:
            return
