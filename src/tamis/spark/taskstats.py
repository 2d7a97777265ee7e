"""What each task has done, in small files beside the result: for reports and measurements."""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class TaskStats:
    """One task: how much came in and went out, and how long it took."""

    n_events: int = 0
    n_matches: int = 0
    match_s: float = 0.0  # in the engine, with encoding
    cpu_s: float = 0.0  # of the Python worker
    wall_s: float = 0.0

    def write(self, folder: str) -> None:
        path = Path(folder) / f"{uuid.uuid4().hex}.json"
        aside = path.with_suffix(".part")
        aside.write_text(json.dumps(asdict(self)))
        aside.rename(path)


class StatsOfTask:
    """Counts while a task runs, and writes when it has ended well."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._stats = TaskStats()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def add(self, n_events: int, n_matches: int, match_s: float) -> None:
        self._stats.n_events += n_events
        self._stats.n_matches += n_matches
        self._stats.match_s += match_s

    def finish(self) -> None:
        self._stats.wall_s = time.perf_counter() - self._wall
        self._stats.cpu_s = time.process_time() - self._cpu
        if os.path.isdir(self._folder) and self._stats.n_events:
            self._stats.write(self._folder)


def read_stats(folder: Path) -> list[TaskStats]:
    return [TaskStats(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
