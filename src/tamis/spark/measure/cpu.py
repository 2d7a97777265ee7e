"""CPU time of this process and everything it started: the JVM and the Python workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """Seconds of CPU so far, of living processes and of those that they have waited for."""
    parents: dict[int, list[int]] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        times[pid] = sum(int(field) for field in fields[11:15]) / _TICKS_PER_S
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0.0)
        waiting += parents.get(pid, [])
    return total


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of CPU and of the clock that the work takes."""
    cpu, clock = cpu_s(), time.perf_counter()
    work()
    return cpu_s() - cpu, time.perf_counter() - clock


def least(work: Callable[[], object], n_times: int) -> tuple[float, float]:
    """The run that took the least CPU."""
    return min(measured(work) for _ in range(n_times))
