"""Through the Matcher, on all cores of the host: from Arrow to ids, and by size of batch.

Events are those of pcm-default, a column map<string, int64> in ordinary memory, as its workload has
them, and the same in pinned memory. Answers to a sample are compared with those of naive.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

import tamis.gpu
from tamis import _core, workloads
from tamis.bench.gpu.parts import Figure
from tamis.bench.measure import timed
from tamis.errors import TamisError
from tamis.matcher import Matcher

ON_HOST, ON_DEVICE = "tuple-key", "tuple-key-cuda"
WORKLOAD = "pcm-default"
N_SAMPLE = 200
END_TO_END_EVENTS = (100_000, 1_000_000, 4_000_000)
N_DRAWN = 500_000  # of end to end; more events are these again
BATCHES = (1, 16, 256, 4096, 65_536, 1_000_000)
ROUNDS, MOST_ROUNDS, SECONDS = 5, 200, 0.25
IN_A_ROW, WARM_UP = 5, 8

OnPhase = Callable[[str], None]


def end_to_end(share: float, on_phase: OnPhase) -> Iterator[Figure]:
    """Large batches from Arrow to NumPy and Arrow, and where the time goes."""
    workload = workloads.get(WORKLOAD, n_filters=max(100, int(250_000 * share)))
    on_phase("making events")
    drawn = workload.events(min(N_DRAWN, _shared(N_DRAWN, share))).read_all()
    truth = _truth(workload, drawn, on_phase)
    for engine in _engines():
        matcher = _matcher(workload, engine, drawn, truth, on_phase)
        for n_events in (_shared(n, share) for n in END_TO_END_EVENTS):
            on_phase(f"{engine}, {n_events:,} events")
            events = pa.concat_tables([drawn] * -(-n_events // len(drawn)))
            events = events.slice(0, n_events).combine_chunks()
            steps = _steps({engine: matcher}, events)[engine]
            yield {**_facts("end-to-end", engine, workload, n_events), **steps}
            if engine == ON_HOST or _core.cuda_unavailable():
                continue
            on_phase(f"{engine}, {n_events:,} events in pinned columns")
            pinned = tamis.gpu.pin(events)
            found = islice(matcher.match_many(pinned), N_SAMPLE)
            if [set(ids) for ids in found] != truth:
                raise TamisError(f"{engine} on {WORKLOAD} in pinned columns: wrong answers")
            steps = _steps({engine: matcher}, pinned)[engine]
            yield {**_facts("end-to-end-pinned", engine, workload, n_events), **steps}


def crossover(n_filters: int, share: float, on_phase: OnPhase) -> Iterator[Figure]:
    """Batches of every size: on the host, on the GPU, and by whichever `auto` takes."""
    workload = workloads.get(WORKLOAD, n_filters=max(100, int(n_filters * share)))
    on_phase("making events")
    sizes = [_shared(n, share) if n > 4096 else n for n in BATCHES]
    drawn = workload.events(min(N_DRAWN, max(sizes))).read_all().combine_chunks()
    truth = _truth(workload, drawn, on_phase)
    matchers = {engine: _matcher(workload, engine, drawn, truth, on_phase) for engine in _engines()}
    for size in sizes:
        on_phase(f"batches of {size:,}")
        events = pa.concat_tables([drawn] * -(-size // len(drawn))).slice(0, max(size, 4096))
        measured = _steps(matchers, events.combine_chunks(), size)
        for engine, steps in measured.items():
            yield {**_facts("crossover", engine, workload, size), **steps}


def _shared(n: int, share: float) -> int:
    return max(1000, int(n * min(1.0, share)))


def _engines() -> tuple[str, ...]:
    return (ON_HOST, "auto") if _core.cuda_unavailable() else (ON_HOST, ON_DEVICE, "auto")


def _facts(figure: str, engine: str, workload: Any, n_events: int) -> Figure:
    return {
        "figure": figure,
        "engine": engine,
        "workload": WORKLOAD,
        "n_filters": workload.n_subscriptions,
        "n_events": n_events,
        "threads": len(os.sched_getaffinity(0)),
        "verified": N_SAMPLE,
    }


def _truth(workload: Any, drawn: pa.Table, on_phase: OnPhase) -> list[set[Any]]:
    on_phase("naive answers")
    naive = Matcher("naive")
    naive.subscribe_many(workload.subscriptions().read_all())
    return [set(ids) for ids in naive.match_many(drawn.slice(0, N_SAMPLE))]


def _matcher(
    workload: Any, engine: str, drawn: pa.Table, truth: list[set[Any]], on_phase: OnPhase
) -> Matcher:
    on_phase(f"building {engine}")
    matcher = Matcher(engine)
    matcher.subscribe_many(workload.subscriptions().read_all())
    matcher.flush()
    matcher.match_many(drawn.slice(0, 4096))
    matcher.flush()  # auto has seen events now, and may want other engines
    found = [set(ids) for ids in matcher.match_many(drawn.slice(0, N_SAMPLE))]
    if found != truth:
        raise TamisError(f"{engine} on {WORKLOAD}: wrong answers")
    return matcher


def _steps(
    matchers: dict[str, Matcher], events: pa.Table, batch: int | None = None
) -> dict[str, Figure]:
    """Medians: from Arrow to ids in one call, and then each step by itself, one after the other.

    The matchers by turns, some calls of each in a row: machines have better and worse seconds.
    """
    tables = [events] if batch is None else _batches(events, batch)
    laps: dict[str, dict[str, list[float]]] = {
        engine: {"all": [], "encode": [], "match": [], "ids": []} for engine in matchers
    }
    for matcher in matchers.values():
        for _ in range(WARM_UP):  # scratch memory is made at first use, and auto tries both sides
            _once(matcher, tables[0])
    end = time.perf_counter() + SECONDS * len(matchers)
    for lap in range(MOST_ROUNDS // IN_A_ROW):
        if lap * IN_A_ROW >= ROUNDS and time.perf_counter() > end:
            break
        for engine, matcher in matchers.items():
            for at in range(lap * IN_A_ROW, (lap + 1) * IN_A_ROW):
                for name, seconds in _once(matcher, tables[at % len(tables)]).items():
                    laps[engine][name].append(seconds)
    figures = {}
    for engine, of_steps in laps.items():
        medians = {name: statistics.median(each) for name, each in of_steps.items()}
        seconds = medians.pop("all")
        figures[engine] = {"seconds": seconds, "steps": medians, "rounds": len(of_steps["all"])}
    return figures


def _batches(events: pa.Table, size: int) -> list[pa.Table]:
    n_most = max(1, min(64, len(events) // size))
    return [events.slice(at * size, size).combine_chunks() for at in range(n_most)]


def _once(matcher: Matcher, table: pa.Table) -> dict[str, float]:
    with timed() as whole:
        found = matcher.match_many(table)
        _ = (found.offsets, found.ids)
    with timed() as encoding:
        batch = matcher.encode(table)
    with timed() as matching:
        found = matcher.match_many(batch)
    with timed() as taking:
        _ = (found.offsets, found.ids)
    watches = {"all": whole, "encode": encoding, "match": matching, "ids": taking}
    return {name: watch.wall_ns / 1e9 for name, watch in watches.items()}
