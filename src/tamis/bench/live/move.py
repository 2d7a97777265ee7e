"""Moves: in tables, one by one, and beside matching."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.bench.live.figure import Figure
from tamis.bench.live.job import (
    MAX_SAMPLES,
    Job,
    check_equal,
    each_call,
    result,
    wall_per_unit,
    window,
)
from tamis.bench.measure import Lap, timed
from tamis.errors import ArgumentError
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

MOVES_A_BATCH = 1000
MOVES_A_TABLE = 100_000
MOVE_ROUNDS = 5
MOVE_SECONDS = 1.0  # of a window

FIGURES = {
    "core": Figure(
        f"a move in the core, in an Arrow table of {MOVES_A_TABLE:,}, CPU time",
        "us",
        at_most=0.5,
        workload="clcb-default",
    ),
    "move_many": Figure(
        "moves from columns of NumPy, wall time", "1/s", at_least=2e6, workload="clcb-default"
    ),
    "move": Figure("one call of move", "us"),
    "still": Figure("match of an encoded event, nothing has moved", "us"),
    "moved": Figure("the same when all moves are done", "us"),
    "moving": Figure("the same while a thread moves, CPU time of the matching thread", "us"),
    "moves meanwhile": Figure("moves made by that thread", "1/s"),
    "index": Figure("bytes of the index after all moves / before", "ratio"),
}


class Mover:
    """A thread that moves, in tables, as long as the context lasts."""

    def __init__(self, matcher: Matcher, tables: Sequence[pa.Table]) -> None:
        self._matcher, self._tables = matcher, tables
        self._is_over = threading.Event()
        self.rate = 0.0
        self.error: Exception | None = None

    def __enter__(self) -> Mover:
        self._is_over.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        n_moves, begin = 0, time.perf_counter()
        try:
            while not self._is_over.is_set():
                for table in self._tables:
                    self._matcher.move_many(table)
                    n_moves += len(table)
                    if self._is_over.is_set():
                        break
        except Exception as error:  # raised again where the context ends
            self.error = error
        self.rate = n_moves / (time.perf_counter() - begin)


def move(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Moves in large tables, one by one, and beside matching; then the answers are checked."""
    job = Job(spec, channel)
    if not hasattr(job.workload, "moves"):
        raise ArgumentError(f"mode move needs a workload with moves (clcb), not {job.workload.key}")
    matcher = job.loaded()
    seconds = min(MOVE_SECONDS, job.seconds / 8)
    n_rows = max(1, min(MOVES_A_TABLE, 2 * job.n))
    moves = job.workload.moves(n_rows * 2 * MOVE_ROUNDS).read_all().combine_chunks()
    tables = [moves.slice(at, n_rows) for at in range(0, len(moves), n_rows)]
    events = job.events(job.cell.n_events)
    position = job.workload.position
    singles = [matcher.encode(events.slice(at, 1), position=position) for at in range(len(events))]

    def match() -> Iterator[int]:
        while True:
            for single in singles:
                matcher._match_batch(single, "subscriptions", "ids")
                yield 1

    windows = {"still": window(match, seconds)}
    before = matcher.stats()
    job.say("moving")
    # A table that has just been moved would find every area in its cell already, and in the caches.
    in_core, in_columns = tables[::2], tables[1::2]
    columns = [{name: each[name].to_numpy() for name in ("id", "x", "y")} for each in in_columns]
    matcher.move_many(tables[-1])  # the first move prepares the index
    many: list[Lap] = []
    core: list[Lap] = []
    for table, arrays in zip(in_core, columns, strict=True):
        with timed() as watch:
            matcher.move_many(arrays)
        many.append(watch.lap(len(arrays["id"])))
        stream = table.__arrow_c_stream__()
        with timed() as watch:
            errors = matcher._move_arrow(stream)
        assert not errors
        core.append(watch.lap(len(table)))
    few = moves.slice(0, max(1, min(MAX_SAMPLES, len(moves))))
    calls = list(zip(*(few[name].to_pylist() for name in ("id", "x", "y")), strict=True))
    windows["move"] = each_call(calls, matcher.move)
    windows["moved"] = window(match, seconds)
    job.say("moving and matching")
    small = [moves.slice(at, MOVES_A_BATCH) for at in range(0, len(moves), MOVES_A_BATCH)]
    with Mover(matcher, small) as mover:
        windows["moving"] = window(match, seconds)
    after = matcher.stats()
    job.say("comparing with a new matcher")
    fresh = job.matcher()
    ids = list(matcher)
    fresh.subscribe_many({"id": ids, "predicate": [matcher[id] for id in ids]})
    fresh.flush()
    check_equal(matcher, fresh, events, position)

    laps = {
        "core": min(core, key=lambda lap: lap.cpu_ns / lap.n),
        "move_many": min(many, key=wall_per_unit),
        **windows,
    }
    sizes = [sum(each["n_index_bytes"] for each in at["segments"]) for at in (before, after)]
    figures = {
        "core": laps["core"].cpu_ns / laps["core"].n / 1000,
        "move_many": 1e9 / wall_per_unit(laps["move_many"]),
        "move": laps["move"].details["p50_ns"] / 1000,
        **{name: laps[name].details["thread_ns"] / 1000 for name in ("still", "moved", "moving")},
        "moves meanwhile": mover.rate,
        "index": sizes[1] / max(1, sizes[0]),
    }
    return result(laps, figures, {"n_moved": after["n_moved"], "stats": after})
