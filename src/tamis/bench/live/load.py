"""Loading all subscriptions: time and memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.bench.live.figure import HEM, Figure
from tamis.bench.live.job import (
    Job,
    memory,
    n_constraints_of,
    result,
)
from tamis.bench.machine import process_bytes
from tamis.bench.measure import timed

if TYPE_CHECKING:
    from tamis.bench.child import Channel

FIGURES = {
    "wall": Figure("wall time of subscribe_many and flush", "s", at_most=15, workload=HEM),
    "cpu": Figure("CPU time of all threads", "s"),
    "resident": Figure(
        "resident bytes of the whole process per constraint", "B", at_most=100, workload=HEM
    ),
    "peak": Figure("the same at its highest", "B"),
    "stats": Figure("bytes per constraint as stats() counts them", "B"),
}


def load(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """subscribe_many of chunks as the workload gives them, then flush; then the input goes."""
    job = Job(spec, channel)
    before = memory()["Rss"]
    matcher = job.matcher()
    job.say(f"loading {job.n:,}")
    with timed() as watch:
        for chunk in job.workload.subscriptions():
            matcher.subscribe_many(chunk)
        matcher.flush()
    assert len(matcher) == job.n
    del chunk
    gc.collect()
    pa.default_memory_pool().release_unused()
    resident, peak = memory()["Rss"], process_bytes()["peak"]
    stats = matcher.stats()
    n_constraints = n_constraints_of(stats)
    counted = stats["n_store_bytes"] + sum(
        each["n_table_bytes"] + each["n_index_bytes"] for each in stats["segments"]
    )
    figures = {
        "wall": watch.wall_ns / 1e9,
        "cpu": watch.cpu_ns / 1e9,
        "resident": resident / n_constraints,
        "peak": peak / n_constraints,
        "stats": counted / n_constraints,
    }
    details = {
        "n_constraints": n_constraints,
        "resident_bytes": resident,
        "resident_bytes_before": before,
        "peak_bytes": peak,
        "stats": stats,
    }
    return result({"load": watch.lap(job.n)}, figures, details)
