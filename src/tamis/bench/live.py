"""Modes about the live matcher: loading, changing, moves, durability, opening, calls, churn.

Each repetition is a process of its own, so that memory and caches are those of a program that does
nothing else. It gives laps, as every mode does, and figures: numbers with a bar that the project
has set itself, which counts for the workload and size it was set for.

    parent   Instrument(cell)()  ──►  child   TASKS[mode](spec, channel)
             figures(): best and median of the repetitions, the bar, and whether it holds
"""

from __future__ import annotations

import gc
import inspect
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tamis.bench import isolation
from tamis.bench.answers import difference, sort_ids
from tamis.bench.check import position_of, to_dicts
from tamis.bench.inputs import Inputs
from tamis.bench.machine import process_bytes
from tamis.bench.measure import Lap, percentiles, timed
from tamis.bench.plan import Cell
from tamis.errors import ArgumentError
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

# Ids of subscriptions that are added while measuring lie above all of the workload's.
NEW_IDS = 1 << 40
MAX_SAMPLES = 20_000
MOVES_A_BATCH = 1000
MOVES_A_TABLE = 100_000  # of the mode move
MOVE_ROUNDS = 5
MOVE_SECONDS = 1.0  # of a window
CHANGES_A_BATCH = 100
SYNCS = ("none", "grouped", "each")
DURABLE_SECONDS = 2.0
MERGE_SECONDS = 60.0

CALL_ROUNDS = 20

CHURN_CHANGES_A_SECOND = 1000
CHURN_ROUNDS = 3
CHURN_SECONDS = 0.25  # of a window
CHURN_TOMBSTONES = 0.01
CHURN_BATCH = 64
# Parts of 25 : 5 : 1 stay segments of their own, since merging takes what is at most four times
# larger; until the delta that is full is merged too, and then all may become one.
CHURN_PARTS = (25, 5, 1)


@dataclass(frozen=True)
class Figure:
    """A number that a live mode gives, and the bar for it."""

    meaning: str
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    workload: str = ""
    """The bar counts for this workload alone, unchanged but for its seed."""
    most: int | None = None
    """The bar counts up to this many subscriptions."""

    @property
    def is_better_high(self) -> bool:
        return self.unit in ("1/s", "share")

    def applies_to(self, cell: Cell) -> bool:
        if self.most is not None and cell.make_workload().n_subscriptions > self.most:
            return False
        changed = {name for name, _ in cell.overrides} - {"seed", "n_events"}
        return self.workload in ("", cell.workload) and not (self.workload and changed)

    def holds(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (
            self.at_least is None or value >= self.at_least
        )


_HEM = "hem-default"  # 1M subscriptions
FIGURES: dict[str, dict[str, Figure]] = {
    "load": {
        "wall": Figure("wall time of subscribe_many and flush", "s", at_most=15, workload=_HEM),
        "cpu": Figure("CPU time of all threads", "s"),
        "resident": Figure(
            "resident bytes of the whole process per constraint", "B", at_most=100, workload=_HEM
        ),
        "peak": Figure("the same at its highest", "B"),
        "stats": Figure("bytes per constraint as stats() counts them", "B"),
    },
    "change": {
        "subscribe p50": Figure("one subscribe", "us", at_most=20, workload=_HEM),
        "subscribe p99": Figure("one subscribe", "us"),
        "subscribe in merge p50": Figure("one subscribe during a merge of everything", "us"),
        "subscribe in merge p99": Figure(
            "one subscribe during a merge of everything", "us", at_most=2000, workload=_HEM
        ),
        "unsubscribe p50": Figure("one unsubscribe", "us"),
        "unsubscribe p99": Figure("one unsubscribe", "us"),
        "move p50": Figure("one move", "us"),
        "move p99": Figure("one move", "us"),
        "move_many": Figure(f"a move in a table of {MOVES_A_BATCH}", "us"),
    },
    "move": {
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
    },
    "durable": {
        "grouped": Figure(
            'single subscribes, sync="grouped"', "1/s", at_least=50_000, workload=_HEM
        ),
        "each": Figure('single subscribes, sync="each"', "1/s"),
        "none": Figure('single subscribes, sync="none"', "1/s"),
        "grouped many": Figure(
            f'rows of subscribe_many in tables of {CHANGES_A_BATCH}, sync="grouped"', "1/s"
        ),
        "fsync": Figure("fsync of 4 KiB by itself", "us"),
    },
    "open": {
        "open": Figure("Matcher.open", "s", at_most=0.1, workload=_HEM),
        "first match": Figure("the first match after it", "s"),
        "disk": Figure("bytes of the directory per constraint", "B"),
        "private": Figure("bytes that one more process adds for itself, per constraint", "B"),
        "shared": Figure(
            "share of what opening made resident that two processes hold in common",
            "share",
            at_least=0.5,
            workload=_HEM,
        ),
    },
    "call": {
        "match": Figure("match of a dict", "ns"),
        "encode": Figure("encoding it, in a long list", "ns"),
        "engine": Figure("matching it encoded, in a long batch", "ns"),
        "overhead": Figure("what is left", "ns", at_most=1000, most=1000),
    },
    "churn": {
        "single": Figure(
            "match of a dict during change / after flush, wall time", "ratio", at_most=2
        ),
        "batch": Figure(
            f"batches of {CHURN_BATCH} encoded events during change / after flush, wall time",
            "ratio",
            at_most=2,
        ),
        "single cpu": Figure("the same, CPU time of the matching thread", "ratio"),
        "batch cpu": Figure("the same, CPU time of the matching thread", "ratio"),
        "batch fresh": Figure("batches during change / in one new segment, wall time", "ratio"),
        "changes": Figure("changes made meanwhile", "1/s"),
    },
}


class Instrument:
    """Does one repetition of a live mode for each call, in a process of its own."""

    def __init__(
        self, cell: Cell, inputs: Inputs, max_seconds: float, on_phase: Callable[[str], None]
    ) -> None:
        self.cell = cell
        self._max_seconds = max_seconds
        self.n_measured = 0
        self.details: dict[str, Any] = {}
        """Of the last repetition: stats() and the like."""
        self._inputs = inputs
        self._on_phase = on_phase
        self._figures: list[dict[str, float]] = []

    def __call__(self) -> dict[str, Lap]:
        spec = {
            "cell": self.cell.to_json(),
            "inputs": str(self._inputs.folder),
            "max_seconds": self._max_seconds,
        }
        if self.cell.mode == "open":
            result = self._open(spec)
        else:
            # The workloads load pandas if it is there, which a program that matches need not.
            without = ("pandas",) if self.cell.mode == "load" else ()
            result = isolation.call(self.cell.mode, spec, without=without, on_phase=self._on_phase)
        self._figures.append(result["figures"])
        self.details = result["details"]
        return {name: Lap(**lap) for name, lap in result["laps"].items()}

    def figures(self) -> dict[str, Any]:
        """Every figure that all repetitions gave: best, median, all, and the bar."""
        found = {}
        for name, figure in FIGURES[self.cell.mode].items():
            values = [each[name] for each in self._figures if name in each]
            if not values:
                continue
            best = max(values) if figure.is_better_high else min(values)
            applies = figure.applies_to(self.cell)
            has_bar = figure.at_most is not None or figure.at_least is not None
            found[name] = {
                "meaning": figure.meaning,
                "unit": figure.unit,
                "repetitions": values,
                "best": best,
                "median": statistics.median(values),
                "at_most": figure.at_most,
                "at_least": figure.at_least,
                "holds": figure.holds(best) if has_bar and applies else None,
            }
        return found

    def _open(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Two processes that hold the matcher at the same time, the first of them opened alone."""
        saved = self._inputs.folder / "saved"
        if not saved.exists():
            isolation.call("save", spec, on_phase=self._on_phase)
        n_processes = 2 if _takes_read_only() else 1
        self._on_phase("opening")
        with ExitStack() as stack:
            children = [
                stack.enter_context(isolation.Child("open", spec)) for _ in range(n_processes)
            ]
            for child in children:
                child.receive()  # it has started: what it loads does not disturb the others
            for child in children:
                child.send({"go": "open"})
                child.receive()  # it is open
            # None may end before all have looked: pages are shared while two hold them.
            for step in ("look", "report"):
                for child in children:
                    child.send({"go": step})
                messages = [child.receive() for child in children]
            reports = [message["result"] for message in messages]
        result: dict[str, Any] = reports[0]
        result["details"]["processes"] = [each["details"].pop("memory") for each in reports]
        if n_processes == 2:
            result["figures"].update(_sharing(reports, result["details"]["n_constraints"]))
        return result


def _sharing(reports: Sequence[dict[str, Any]], n_constraints: int) -> dict[str, float]:
    added = []
    for memory in reports[0]["details"]["processes"]:
        grown = {name: memory["after"][name] - memory["before"][name] for name in memory["after"]}
        private = grown["Private_Clean"] + grown["Private_Dirty"]
        shared = grown["Shared_Clean"] + grown["Shared_Dirty"]
        added.append((private, shared))
    private, shared = added[1]
    return {
        "private": private / max(1, n_constraints),
        "shared": max(0, shared) / max(1, private + shared),
    }


def _takes_read_only() -> bool:
    return "read_only" in inspect.signature(Matcher.open).parameters


# --- in the child ---


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


def _result(
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


def _n_constraints(stats: dict[str, Any]) -> int:
    return sum(each["n_constraints"] for each in stats["segments"])


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
    n_constraints = _n_constraints(stats)
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
    return _result({"load": watch.lap(job.n)}, figures, details)


def _each(calls: Sequence[tuple[Any, ...]], change: Callable[..., Any]) -> Lap:
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


def change(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Single changes among all subscriptions; the last of them while everything is merged."""
    job = Job(spec, channel)
    matcher = job.loaded()
    n_samples = max(1, min(MAX_SAMPLES, job.n // 4))
    texts = job.texts(n_samples)
    laps: dict[str, Lap] = {}
    figures: dict[str, float] = {}
    details: dict[str, Any] = {"n_live": len(matcher)}

    def note(name: str, lap: Lap) -> None:
        laps[name] = lap
        for each in ("p50", "p99"):
            figures[f"{name} {each}"] = lap.details[f"{each}_ns"] / 1000

    job.say("subscribe")
    new = [(NEW_IDS + place, text) for place, text in enumerate(texts)]
    note("subscribe", _each(new, matcher.subscribe))
    if hasattr(job.workload, "moves"):
        job.say("move")
        matcher.flush()
        moves = job.workload.moves(n_samples).read_all().combine_chunks()
        columns = (moves[name].to_pylist() for name in ("id", "x", "y"))
        note("move", _each(list(zip(*columns, strict=True)), matcher.move))
        matcher.flush()
        batches = [(moves.slice(at, MOVES_A_BATCH),) for at in range(0, len(moves), MOVES_A_BATCH)]
        lap = _each(batches, matcher.move_many)
        laps["move_many"] = Lap(len(moves), lap.wall_ns, lap.cpu_ns, lap.details)
        figures["move_many"] = lap.wall_ns / len(moves) / 1000
    job.say("unsubscribe")
    matcher.flush()
    gone = np.random.default_rng(1).permutation(job.n)[:n_samples].tolist()
    note("unsubscribe", _each([(id,) for id in gone], matcher.unsubscribe))
    job.say("subscribe during a merge")
    matcher.flush()
    note("subscribe in merge", _subscribe_in_merge(job, matcher, texts, details))
    details["stats"] = matcher.stats()
    return _result(laps, figures, details)


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
        except Exception as error:
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
    moves = job.workload.moves(n_rows * MOVE_ROUNDS).read_all().combine_chunks()
    tables = [moves.slice(at, n_rows) for at in range(0, len(moves), n_rows)]
    events = job.events(job.cell.n_events)
    position = job.workload.position
    singles = [matcher.encode(events.slice(at, 1), position=position) for at in range(len(events))]

    def match() -> Iterator[int]:
        while True:
            for single in singles:
                matcher._match_batch(single, "subscriptions", "ids")
                yield 1

    windows = {"still": _window(match, seconds)}
    before = matcher.stats()
    job.say("moving")
    columns = [{name: each[name].to_numpy() for name in ("id", "x", "y")} for each in tables]
    matcher.move_many(tables[0])  # the first move prepares the index
    many: list[Lap] = []
    core: list[Lap] = []
    for table, arrays in zip(tables, columns, strict=True):
        with timed() as watch:
            matcher.move_many(arrays)
        many.append(watch.lap(len(table)))
        stream = table.__arrow_c_stream__()
        with timed() as watch:
            errors = matcher._move_arrow(stream)
        assert not errors
        core.append(watch.lap(len(table)))
    few = moves.slice(0, max(1, min(MAX_SAMPLES, len(moves))))
    calls = list(zip(*(few[name].to_pylist() for name in ("id", "x", "y")), strict=True))
    windows["move"] = _each(calls, matcher.move)
    windows["moved"] = _window(match, seconds)
    job.say("moving and matching")
    small = [moves.slice(at, MOVES_A_BATCH) for at in range(0, len(moves), MOVES_A_BATCH)]
    with Mover(matcher, small) as mover:
        windows["moving"] = _window(match, seconds)
    after = matcher.stats()
    job.say("comparing with a new matcher")
    fresh = job.matcher()
    ids = list(matcher)
    fresh.subscribe_many({"id": ids, "predicate": [matcher[id] for id in ids]})
    fresh.flush()
    _check_equal(matcher, fresh, events, position)

    laps = {
        "core": min(core, key=lambda lap: lap.cpu_ns / lap.n),
        "move_many": min(many, key=_wall_per_unit),
        **windows,
    }
    sizes = [sum(each["n_index_bytes"] for each in at["segments"]) for at in (before, after)]
    figures = {
        "core": laps["core"].cpu_ns / laps["core"].n / 1000,
        "move_many": 1e9 / _wall_per_unit(laps["move_many"]),
        "move": laps["move"].details["p50_ns"] / 1000,
        **{name: laps[name].details["thread_ns"] / 1000 for name in ("still", "moved", "moving")},
        "moves meanwhile": mover.rate,
        "index": sizes[1] / max(1, sizes[0]),
    }
    return _result(laps, figures, {"n_moved": after["n_moved"], "stats": after})


def _subscribe_in_merge(
    job: Job, matcher: Matcher, texts: list[str], details: dict[str, Any]
) -> Lap:
    """Single subscribes from when a batch makes the largest segment merge until that is over."""
    part = job.table().slice(0, job.n // 3 + 1)
    first = 2 * NEW_IDS
    ids = pa.array(np.arange(first, first + len(part)))
    table = part.set_column(0, "id", ids)
    n_merges = matcher.stats()["n_merges"]
    matcher.subscribe_many(table)
    laps: list[int] = []
    now, subscribe, end = time.perf_counter_ns, matcher.subscribe, time.monotonic() + MERGE_SECONDS
    id = 3 * NEW_IDS
    with timed() as watch:
        while matcher.stats()["n_merges"] == n_merges and time.monotonic() < end:
            for text in texts[:64]:
                id += 1
                begin = now()
                subscribe(id, text)
                laps.append(now() - begin)
    details["merge_seconds"] = watch.wall_ns / 1e9
    if not laps:  # it was over at once
        return _each([(id, texts[0])], subscribe)
    lap = watch.lap(len(laps))
    lap.details = percentiles(laps)
    return lap


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
    return _result(laps, figures, details)


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


def save(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The directory that the mode open opens."""
    job = Job(spec, channel)
    job.loaded().save(job.inputs.folder / "saved")
    return {}


def open_saved(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Opens the directory, matches, and says what memory that took once the others did too."""
    job = Job(spec, channel)
    path = job.inputs.folder / "saved"
    event = to_dicts(job.events(1))[0]
    at = position_of(event, job.workload.position)
    mode: dict[str, Any] = {"read_only": True} if _takes_read_only() else {}
    gc.collect()
    channel.send({"started": True})
    channel.wait()
    before = memory()
    with timed() as opening:
        matcher = Matcher.open(path, **mode, **job.options)
    with timed() as first:
        matcher.match(event, at=at)
    for other in to_dicts(job.events(100)):
        matcher.match(other, at=position_of(other, job.workload.position))
    assert len(matcher) == job.n
    channel.send({"open": True})
    channel.wait()
    after, stats = memory(), matcher.stats()
    channel.send({"looked": True})
    channel.wait()
    n_constraints = _n_constraints(stats)
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return _result(
        {"open": opening.lap(1), "first match": first.lap(1)},
        {
            "open": opening.wall_ns / 1e9,
            "first match": first.wall_ns / 1e9,
            "disk": n_bytes / max(1, n_constraints),
        },
        {
            "n_constraints": n_constraints,
            "is_read_only": bool(mode),
            "memory": {"before": before, "after": after},
            "stats": stats,
        },
    )


def call(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """match of single dicts, less what encoding and the engine take in long batches."""
    job = Job(spec, channel)
    matcher = job.loaded()
    dicts = to_dicts(job.events(job.cell.n_events))
    batch = matcher.encode(dicts)
    best: dict[str, Lap] = {}

    def single() -> None:
        for event in dicts:
            matcher.match(event)

    ways: dict[str, Callable[[], Any]] = {
        "match": single,
        "encode": lambda: matcher.encode(dicts),
        "engine": lambda: matcher._match_batch(batch, "subscriptions", "ids"),
    }
    for _ in range(CALL_ROUNDS):
        for name, way in ways.items():
            with timed() as watch:
                way()
            lap = watch.lap(len(dicts))
            if name not in best or lap.cpu_ns < best[name].cpu_ns:
                best[name] = lap
    figures = {name: lap.cpu_ns / lap.n for name, lap in best.items()}
    figures["overhead"] = figures["match"] - figures["encode"] - figures["engine"]
    return _result(best, figures, {"stats": matcher.stats()})


class Changer:
    """Changes a matcher at a steady rate from a thread: a new subscription, then one that goes.

    What is late is made up for, so the rate holds where the interpreter lets it.
    """

    def __init__(self, matcher: Matcher, texts: list[str], first_id: int) -> None:
        self._matcher = matcher
        self._texts = texts
        self.next_id = first_id
        self.n_changes = 0
        self.error: Exception | None = None
        self._is_over = threading.Event()

    def __enter__(self) -> Changer:
        self._is_over.clear()
        self._begin = time.perf_counter()
        self._n_before = self.n_changes
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self.rate = (self.n_changes - self._n_before) / (time.perf_counter() - self._begin)
        if self.error:
            raise self.error

    def add(self) -> None:
        self._matcher.subscribe(self.next_id, self._texts[self.next_id % len(self._texts)])
        self.next_id += 1

    def _run(self) -> None:
        interval = 1 / CHURN_CHANGES_A_SECOND
        due, n_done = time.perf_counter(), 0
        try:
            while not self._is_over.is_set():
                while due <= time.perf_counter():
                    if n_done % 2:
                        self._matcher.unsubscribe(self.next_id - 1)
                    else:
                        self.add()
                    n_done += 1
                    due += interval
                time.sleep(max(0.0, due - time.perf_counter()))
        except Exception as error:
            self.error = error
        self.n_changes += n_done


def churn(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Windows of matching during changes, then as many after flush.

    The matcher gets three segments and a full delta in this order: single subscriptions until the
    delta has its greatest size; parts in sizes that do not merge, each flushed; the tombstones; and
    single subscriptions until what the windows will add fills the delta.
    """
    job = Job(spec, channel)
    table, texts = job.table(), job.texts(MAX_SAMPLES)
    seconds = min(CHURN_SECONDS, job.seconds / 24)
    matcher = job.matcher()
    changer = Changer(matcher, texts, NEW_IDS)
    capacity = _grow_delta(matcher, changer)
    matcher.flush()
    done = 0
    for place, _ in enumerate(CHURN_PARTS):
        end = job.n * sum(CHURN_PARTS[: place + 1]) // sum(CHURN_PARTS)
        job.say(f"loading {end:,} of {job.n:,}")
        matcher.subscribe_many(table.slice(done, end - done))
        matcher.flush()
        done = end
    gone = np.random.default_rng(1).permutation(job.n)[: int(job.n * CHURN_TOMBSTONES)]
    matcher.unsubscribe_many(gone.tolist())

    events = job.events(job.cell.n_events)
    position = job.workload.position
    dicts = [(event, position_of(event, position)) for event in to_dicts(events)]

    def single() -> Iterator[int]:
        while True:
            for event, at in dicts:
                matcher.match(event, at=at)
                yield 1

    def batch_of(which: Matcher) -> Callable[[], Iterator[int]]:
        batches = [
            which.encode(events.slice(at, CHURN_BATCH), position=position)
            for at in range(0, len(events), CHURN_BATCH)
        ]

        def batch() -> Iterator[int]:
            while True:
                for each in batches:
                    which._match_batch(each, "subscriptions", "ids")
                    yield len(each)

        return batch

    ways: dict[str, Callable[[], Iterator[int]]] = {"single": single, "batch": batch_of(matcher)}
    windows: dict[str, list[Lap]] = {}
    rates: list[float] = []
    states: list[dict[str, Any]] = []
    # Half of the changes add; windows end late, by up to a batch.
    room = CHURN_CHANGES_A_SECOND / 2 * seconds * CHURN_ROUNDS * len(ways) * 1.5
    _fill_delta(matcher, changer, capacity - min(capacity // 2, int(room)))
    for place, (name, way) in enumerate([*ways.items()] * CHURN_ROUNDS):
        job.say(f"during change, window {place + 1} of {CHURN_ROUNDS * len(ways)}")
        states.append(_state(matcher))
        with changer:
            lap = _window(way, seconds)
        rates.append(changer.rate)
        states[-1]["after"] = _state(matcher)
        windows.setdefault(f"{name} changing", []).append(lap)
    matcher.flush()
    for name, way in [*ways.items()] * CHURN_ROUNDS:
        job.say("after flush")
        windows.setdefault(f"{name} quiet", []).append(_window(way, seconds))
    quiet = _state(matcher)
    job.say("comparing with a new matcher")
    fresh = job.matcher()
    ids = list(matcher)
    fresh.subscribe_many({"id": ids, "predicate": [matcher[id] for id in ids]})
    fresh.flush()
    _check_equal(matcher, fresh, events, position)
    way = batch_of(fresh)
    windows["batch fresh"] = [_window(way, seconds) for _ in range(CHURN_ROUNDS)]

    laps = {name: min(each, key=_wall_per_unit) for name, each in windows.items()}
    figures = {
        name: _wall_per_unit(laps[f"{name} changing"]) / _wall_per_unit(laps[f"{name} quiet"])
        for name in ways
    }
    for name in ways:
        changing, still = laps[f"{name} changing"], laps[f"{name} quiet"]
        figures[f"{name} cpu"] = changing.details["thread_ns"] / still.details["thread_ns"]
    figures["batch fresh"] = _wall_per_unit(laps["batch changing"]) / _wall_per_unit(
        laps["batch fresh"]
    )
    figures["changes"] = min(rates)
    details = {
        "delta_capacity": capacity,
        "states": states,
        "quiet": quiet,
        "n_tombstones": len(gone),
        "stats": matcher.stats(),
    }
    return _result(laps, figures, details)


def _wall_per_unit(lap: Lap) -> float:
    return lap.wall_ns / lap.n


def _window(way: Callable[[], Iterator[int]], seconds: float) -> Lap:
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


def _grow_delta(matcher: Matcher, changer: Changer) -> int:
    """Subscribes until the delta has been full twice at the same size, and gives that size.

    A delta begins small and grows each time it is full.
    """
    most, before, last = 0, -1, 0
    for _ in range(100_000):
        changer.add()
        n_filters = matcher.stats()["n_delta_filters"]
        if n_filters < last:  # it was sealed
            if most == before:
                return most
            before, most = most, 0
        most, last = max(most, n_filters), n_filters
    return most


def _fill_delta(matcher: Matcher, changer: Changer, n_filters: int) -> None:
    for _ in range(4 * n_filters):
        if n_filters <= matcher.stats()["n_delta_filters"]:
            return
        changer.add()


def _state(matcher: Matcher) -> dict[str, Any]:
    stats = matcher.stats()
    return {
        "segments": [each["n_filters"] for each in stats["segments"]],
        "n_delta_filters": stats["n_delta_filters"],
        "n_dead": stats["n_dead"],
        "n_merges": stats["n_merges"],
    }


def _check_equal(
    matcher: Matcher, fresh: Matcher, events: pa.Table, position: tuple[str, str] | None
) -> None:
    """What was changed all the time must answer as one that never was."""
    got, right = (each.match_many(events, position=position) for each in (matcher, fresh))
    for event, (ids, expected) in enumerate(zip(got, right, strict=True)):
        found = difference(event, sort_ids(expected), sort_ids(ids))
        if found:
            raise RuntimeError(f"wrong answer: {found}")


TASKS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "load": load,
    "change": change,
    "move": move,
    "durable": durable,
    "save": save,
    "open": open_saved,
    "call": call,
    "churn": churn,
}
