"""What tasks have done, for reports and measurements.

Spark brings it to the driver with the end of each task, in an accumulator; or each task writes a
small file into a folder that all workers see.
"""

from __future__ import annotations

import json
import time
import uuid
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession


@dataclass
class TaskStats:
    """One task, or several together: how much came in and went out, and how long it took."""

    n_events: int = 0
    n_matches: int = 0
    match_s: float = 0.0  # in the engine, with encoding
    cpu_s: float = 0.0  # of the Python worker
    wall_s: array[float] = field(default_factory=lambda: array("d"))  # of each task

    def add(self, other: TaskStats) -> None:
        self.n_events += other.n_events
        self.n_matches += other.n_matches
        self.match_s += other.match_s
        self.cpu_s += other.cpu_s
        self.wall_s.extend(other.wall_s)

    def write(self, folder: str) -> None:
        path = Path(folder) / f"{uuid.uuid4().hex}.json"
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps({**asdict(self), "wall_s": list(self.wall_s)}))
        aside.rename(path)


Stats = str | Accumulator[TaskStats]  # a folder, or what Spark gathers


class StatsOfTask:
    """Counts while a task runs, and tells when it has ended well."""

    def __init__(self, target: Stats) -> None:
        self._target = target
        self._stats = TaskStats()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def add(self, n_events: int, n_matches: int, match_s: float) -> None:
        self._stats.n_events += n_events
        self._stats.n_matches += n_matches
        self._stats.match_s += match_s

    def finish(self) -> None:
        if not self._stats.n_events:
            return
        self._stats.wall_s.append(time.perf_counter() - self._wall)
        self._stats.cpu_s = time.process_time() - self._cpu
        if isinstance(self._target, str):
            self._stats.write(self._target)
        else:
            self._target.add(self._stats)


def gathered(spark: SparkSession) -> Accumulator[TaskStats]:
    """For `stats` of `match`: its value is what came so far."""
    return spark.sparkContext.accumulator(TaskStats(), _Together())


class _Together(AccumulatorParam[TaskStats]):
    def zero(self, value: TaskStats) -> TaskStats:
        return TaskStats()

    def addInPlace(self, value1: TaskStats, value2: TaskStats) -> TaskStats:
        value1.add(value2)
        return value1


def together(several: Iterable[TaskStats]) -> TaskStats:
    total = TaskStats()
    for stats in several:
        total.add(stats)
    return total


def read_stats(folder: Path) -> list[TaskStats]:
    """What the tasks have written, one by one."""
    found = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return [TaskStats(**{**each, "wall_s": array("d", each["wall_s"])}) for each in found]
