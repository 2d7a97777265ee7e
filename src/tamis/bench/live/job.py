"""What every live mode's repetition needs, in its own process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.bench.answers import difference, sort_ids
from tamis.bench.inputs import Inputs
from tamis.bench.measure import Lap, percentiles, timed
from tamis.bench.plan import Cell
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

# Ids of subscriptions that are added while measuring lie above all of the workload's.
NEW_IDS = 1 << 40
MAX_SAMPLES = 20_000


class Job:
    """What a repetition works on."""

    def __init__(self, spec: dict[str, Any], channel: Channel) -> None:
        self.cell = Cell.from_json(spec["cell"])
        self.inputs = Inputs(spec["inputs"])
        self.workload = self.inputs.workload(self.cell)
        self.n = self.workload.n_subscriptions
        self.seconds = float(spec["max_seconds"])
        self.say = channel.phase
        self.channel = channel

    @property
    def options(self) -> dict[str, Any]:
        numbers = {name: float(value) for name, value in self.cell.parameters}
        return {"engine": self.cell.engine, "threads": self.cell.threads, "parameters": numbers}

    def matcher(self) -> Matcher:
        return Matcher(space=self.workload.space, **self.options)

    def loaded(self) -> Matcher:
        """A matcher with all subscriptions."""
        matcher = self.matcher()
        self.load(matcher)
        return matcher

    def load(self, matcher: Matcher) -> None:
        self.say(f"loading {self.n:,}")
        for chunk in self.workload.subscriptions():
            matcher.subscribe_many(chunk)
        matcher.flush()

    def table(self) -> pa.Table:
        return self.workload.subscriptions().read_all()

    def events(self, n: int) -> pa.Table:
        return self.workload.events(n).read_all().combine_chunks()

    def texts(self, n: int) -> list[str]:
        """The first predicates, again from the first if there are fewer."""
        found = self.table()["predicate"].slice(0, n).to_pylist()
        return [found[place % len(found)] for place in range(n)]

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        path = self.inputs.folder / name
        shutil.rmtree(path, ignore_errors=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def result(
    laps: dict[str, Lap], figures: dict[str, float], details: dict[str, Any]
) -> dict[str, Any]:
    def plain(lap: Lap) -> dict[str, Any]:
        return {"n": lap.n, "wall_ns": lap.wall_ns, "cpu_ns": lap.cpu_ns, "details": lap.details}

    return {
        "laps": {name: plain(lap) for name, lap in laps.items()},
        "figures": figures,
        "details": details,
    }


def memory() -> dict[str, int]:
    """Bytes of this process by kind, as the kernel counts them."""
    kinds = ("Rss", "Pss", "Private_Clean", "Private_Dirty", "Shared_Clean", "Shared_Dirty")
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in kinds:
            found[name] = int(rest.split()[0]) * 1024
    return found


def n_constraints_of(stats: dict[str, Any]) -> int:
    return sum(each["n_constraints"] for each in stats["segments"])


def each_call(calls: Sequence[tuple[Any, ...]], change: Callable[..., Any]) -> Lap:
    """Each call with a clock around it."""
    laps: list[int] = []
    now = time.perf_counter_ns
    with timed() as watch:
        for arguments in calls:
            begin = now()
            change(*arguments)
            laps.append(now() - begin)
    lap = watch.lap(len(laps))
    lap.details = percentiles(laps)
    return lap


def wall_per_unit(lap: Lap) -> float:
    return lap.wall_ns / lap.n


def window(way: Callable[[], Iterator[int]], seconds: float) -> Lap:
    """As many matches as fit the window; `thread_ns` is this thread's CPU time for an event."""
    n, now = 0, time.perf_counter_ns
    with timed() as watch:
        end, thread = now() + int(seconds * 1e9), time.thread_time_ns()
        for n_matched in way():
            n += n_matched
            if now() >= end:
                break
        thread = time.thread_time_ns() - thread
    lap = watch.lap(n)
    lap.details = {"thread_ns": thread / n}
    return lap


def check_equal(
    matcher: Matcher, fresh: Matcher, events: pa.Table, position: tuple[str, str] | None
) -> None:
    """What was changed all the time must answer as one that never was."""
    got, right = (each.match_many(events, position=position) for each in (matcher, fresh))
    for event, (ids, expected) in enumerate(zip(got, right, strict=True)):
        found = difference(event, sort_ids(expected), sort_ids(ids))
        if found:
            raise RuntimeError(f"wrong answer: {found}")
