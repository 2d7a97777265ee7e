"""Stopwatch and statistics.

A `Lap` is one repetition: how many units (events, subscriptions, predicates) it did, in how much
wall time and in how much CPU time of the whole process, so that work on other threads counts.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Lap:
    """One repetition of one measurement."""

    n: int
    wall_ns: int
    cpu_ns: int
    details: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"n": self.n, "wall_ns": self.wall_ns, "cpu_ns": self.cpu_ns, **self.details}


@dataclass
class Watch:
    """What a `with timed() as watch` block took."""

    wall_ns: int = 0
    cpu_ns: int = 0

    def lap(self, n: int) -> Lap:
        return Lap(n, self.wall_ns, self.cpu_ns)


@contextmanager
def timed() -> Iterator[Watch]:
    """Wall and CPU time of the block; the garbage collector waits meanwhile."""
    watch = Watch()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        yield watch
        watch.cpu_ns = time.process_time_ns() - cpu
        watch.wall_ns = time.perf_counter_ns() - wall
    finally:
        if was_enabled:
            gc.enable()


def percentiles(samples_ns: Sequence[int]) -> dict[str, float]:
    """p50, p99, min and max of single events; a percentile is a sample, never interpolated."""
    samples = np.sort(np.asarray(samples_ns, dtype=np.int64))
    p50, p99 = np.percentile(samples, [50, 99], method="inverted_cdf")
    return {
        "p50_ns": int(p50),
        "p99_ns": int(p99),
        "min_ns": int(samples[0]),
        "max_ns": int(samples[-1]),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Minimum, median and maximum over repetitions."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summarise(unit: str, laps: Sequence[Lap]) -> dict[str, Any]:
    """A series as the result file has it: every repetition, and minimum and spread of them.

    CPU time has a resolution; a lap too short to show any is left at 0 rather than guessed.
    """
    summary = {
        "cpu_ns_per_unit": spread([lap.cpu_ns / max(1, lap.n) for lap in laps]),
        "wall_ns_per_unit": spread([lap.wall_ns / max(1, lap.n) for lap in laps]),
        "units_per_second": spread([lap.n * 1e9 / max(1, lap.wall_ns) for lap in laps]),
    }
    for name in laps[0].details:
        summary[name] = spread([lap.details[name] for lap in laps])
    return {
        "unit": unit,
        "n": laps[0].n,
        "repetitions": [lap.to_json() for lap in laps],
        "summary": summary,
    }
