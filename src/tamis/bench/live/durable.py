"""Single changes in a directory, by how they are synced."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tamis.bench.live.figure import HEM, Figure
from tamis.bench.live.job import (
    MAX_SAMPLES,
    NEW_IDS,
    Job,
    result,
)
from tamis.bench.measure import Lap, timed
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

CHANGES_A_BATCH = 100
SYNCS = ("none", "grouped", "each")
DURABLE_SECONDS = 2.0

FIGURES = {
    "grouped": Figure('single subscribes, sync="grouped"', "1/s", at_least=50_000, workload=HEM),
    "each": Figure('single subscribes, sync="each"', "1/s"),
    "none": Figure('single subscribes, sync="none"', "1/s"),
    "grouped many": Figure(
        f'rows of subscribe_many in tables of {CHANGES_A_BATCH}, sync="grouped"', "1/s"
    ),
    "fsync": Figure("fsync of 4 KiB by itself", "us"),
}


def durable(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Single subscribes in a directory that holds all subscriptions already."""
    job = Job(spec, channel)
    texts = job.texts(MAX_SAMPLES)
    seconds = min(DURABLE_SECONDS, job.seconds / 10)
    laps: dict[str, Lap] = {}
    figures: dict[str, float] = {"fsync": _fsync_ns(job.inputs.folder) / 1000}
    details: dict[str, Any] = {}
    with job.directory("durable") as path:
        with Matcher.open(
            path, create=True, space=job.workload.space, sync="none", **job.options
        ) as matcher:
            job.load(matcher)
        id = NEW_IDS
        for sync in SYNCS:
            job.say(f'sync="{sync}"')
            with Matcher.open(path, sync=sync, **job.options) as matcher:
                matcher.flush()
                lap = _subscribe_for(seconds, matcher, texts, id)
                id += lap.n
                laps[sync] = lap
                figures[sync] = lap.n * 1e9 / lap.wall_ns
                if sync == "grouped":
                    laps["grouped many"] = lap = _subscribe_batches(matcher, texts, id)
                    id += lap.n
                    figures["grouped many"] = lap.n * 1e9 / lap.wall_ns
                assert len(matcher) == job.n + id - NEW_IDS
                details[sync] = matcher.stats()
    return result(laps, figures, details)


def _subscribe_for(seconds: float, matcher: Matcher, texts: list[str], first_id: int) -> Lap:
    subscribe, now, n = matcher.subscribe, time.perf_counter_ns, 0
    with timed() as watch:
        end = now() + int(seconds * 1e9)
        for text in texts:
            subscribe(first_id + n, text)
            n += 1
            if now() > end:
                break
    return watch.lap(n)


def _subscribe_batches(matcher: Matcher, texts: list[str], first_id: int) -> Lap:
    ids = list(range(first_id, first_id + len(texts)))
    batches = [
        {"id": ids[at : at + CHANGES_A_BATCH], "predicate": texts[at : at + CHANGES_A_BATCH]}
        for at in range(0, len(texts), CHANGES_A_BATCH)
    ]
    with timed() as watch:
        for batch in batches:
            matcher.subscribe_many(batch)
    return watch.lap(len(texts))


def _fsync_ns(folder: Path) -> float:
    """The disk's own time, to judge the rest by."""
    path = folder / "fsync"
    taken = []
    with path.open("wb") as file:
        for _ in range(20):
            file.write(b"\0" * 4096)
            file.flush()
            begin = time.perf_counter_ns()
            os.fsync(file.fileno())
            taken.append(time.perf_counter_ns() - begin)
    path.unlink()
    return statistics.median(taken)
