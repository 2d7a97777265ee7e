"""Runs a plan: stage by stage, every answer checked, one file for each finished cell.

for each stage (workload, threads):
    build every engine      (mode build: repetition 1 of each, repetition 2 of each, …)
    check every engine      sample against naive, digests against one another
    for each mode:          repetition 1 of each engine, repetition 2 of each, …
    write the files         aside, then renamed

With a time for each cell, a stage is one engine and does all this in a process of its own, which is
killed when its time is over; the cell is then recorded as capped, and not tried again.
"""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.bench import isolation, live, machine, modes, results
from tamis.bench import plan as plans
from tamis.bench import progress as progresses
from tamis.bench.answers import Answers, collect, difference, digest_event, sort_ids
from tamis.bench.check import SAMPLE_EVENTS, Referee, check
from tamis.bench.gpu import parts as device
from tamis.bench.inputs import Inputs, Workspace
from tamis.bench.measure import Lap, summarise
from tamis.bench.plan import DEVICE_MODE, LIVE_MODES, MICRO_MODES, Cell, Plan, Stage
from tamis.bench.progress import OnProgress, Progress
from tamis.bench.results import FINISHED, RUN_FILE, Result, Run
from tamis.bench.subject import CHECKER, Subject
from tamis.errors import ArgumentError, TamisError
from tamis.workloads import Workload

if TYPE_CHECKING:
    from tamis.bench.child import Channel


def run(
    *,
    suite: str | None = None,
    workloads: Sequence[str] = (),
    engines: Sequence[str] = (),
    modes: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    threads: Sequence[int] = (),
    events: int | None = None,
    batch: int | None = None,
    deliver: str | None = None,
    output: str | None = None,
    repeat: int | None = None,
    max_seconds: float | None = None,
    sequential: bool = False,
    cell_seconds: float | None = None,
    baseline: str | None = None,
    parts: Sequence[str] = (),
    out: str | Path = results.PRESET_OUT,
    name: str | None = None,
    on_progress: OnProgress = progresses.ignore,
) -> Run:
    """Measures a suite, or a grid of workloads × engines × parameters × threads × modes.

    suite        a name of `tamis.bench.SUITES`; or else:
    workloads    keys of `tamis.workloads`; `overrides` changes their parameters
    engines      names of `tamis.engines()`, all available ones by default; `parameters` are theirs
    modes        of `tamis.bench.MODES`; by default latency and throughput
    events       how many; by default the workload's own number
    repeat       repetitions, of which the minimum counts; `max_seconds` caps those of a cell
    parts        of the suite "gpu", all by default
    cell_seconds each engine in a process of its own, which is killed after so many seconds
    out, name    the results are files in out/name; a run of that name is resumed

    A wrong answer gives no number: see `Run.is_ok` and the status of each of `Run.cells`.
    """
    plan = plans.make(
        suite=suite,
        workloads=workloads,
        engines=engines,
        modes=modes,
        overrides=overrides,
        seed=seed,
        parameters=parameters,
        threads=threads,
        events=events,
        batch=batch,
        deliver=deliver,
        output=output,
        repeat=repeat,
        max_seconds=max_seconds,
        sequential=sequential,
        cell_seconds=cell_seconds,
        baseline=baseline,
        parts=parts,
    )
    return run_plan(start(plan, out, name), on_progress)


def resume(folder: str | Path, on_progress: OnProgress = progresses.ignore) -> Run:
    """Measures the cells of a run that are not finished."""
    folder = Path(folder)
    if not (folder / RUN_FILE).is_file():
        raise ArgumentError(f"{folder} must be the folder of a run, and it has no {RUN_FILE}")
    return run_plan(folder, on_progress)


def start(plan: Plan, out: str | Path, name: str | None = None) -> Path:
    """The folder of a run of this plan; one of that name must have the same plan."""
    if name is None:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        name = first = "-".join(filter(None, [stamp, plan.suite]))
        count = 1
        while (Path(out) / name).exists():
            count += 1
            name = f"{first}-{count}"
    if not name or name in (".", "..") or "/" in name:
        raise ArgumentError(f"name must be the name of a folder, not {name!r}")
    folder = Path(out) / name
    if (folder / RUN_FILE).is_file():
        old = Plan.from_json(results.read(folder / RUN_FILE)["plan"])
        if old.cells != plan.cells:
            raise ArgumentError(
                f"name must be new or that of a run with the same cells, not {name!r}; "
                f"remove {folder} or use --resume {folder} to finish what was planned there"
            )
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    about = {"format": results.FORMAT, "name": name, **_circumstances(), "plan": plan.to_json()}
    results.write(folder / RUN_FILE, about)
    return folder


def run_plan(folder: Path, on_progress: OnProgress = progresses.ignore) -> Run:
    """Measures every unfinished cell of the run in `folder`."""
    results.remove_leftovers(folder)
    loaded = results.load(folder)
    runner = _Runner(folder, loaded.plan, loaded.cells, on_progress)
    runner.go()
    return results.load(folder)


def _circumstances() -> dict[str, Any]:
    return {
        "date": machine.now(),
        "command": machine.command(),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "git": machine.git(),
    }


class _Measure:
    """A cell that is being measured."""

    def __init__(self, cell: Cell, step: modes.Step, instrument: Any = None) -> None:
        self.cell = cell
        self.step = step
        self.instrument = instrument
        self.laps: dict[str, list[Lap]] = {}
        self.spent_s = 0.0
        self.longest_s = 0.0
        self.was_cut = False
        self.error = ""

    def repeat(self, max_seconds: float) -> None:
        """One more repetition, unless it would pass the limit or one failed."""
        if self.error or self.was_cut:
            return
        if self.laps and self.spent_s + self.longest_s > max_seconds:
            self.was_cut = True
            return
        begin = time.perf_counter()
        try:
            for name, lap in self.step().items():
                self.laps.setdefault(name, []).append(lap)
        except Exception:
            self.error = traceback.format_exc()
        took = time.perf_counter() - begin
        self.spent_s += took
        self.longest_s = max(self.longest_s, took)

    def series(self) -> dict[str, Any]:
        unit = modes.UNITS[self.cell.mode]
        return {name: summarise(unit, laps) for name, laps in self.laps.items()}


@dataclass
class _Known:
    """Answers that later ones are compared with."""

    label: str
    answers: Answers
    cells: list[Cell]
    subject: Subject | None = None


class _Runner:
    def __init__(
        self, folder: Path, plan: Plan, finished: Sequence[Result], on_progress: OnProgress
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.on_progress = on_progress
        self.begin = time.monotonic()
        self.done = {each["id"]: each for each in finished if each["status"] in FINISHED}
        self.places = {cell.id: place for place, cell in enumerate(plan.cells, start=1)}
        self.circumstances: dict[str, Any] = {}
        self.known: dict[tuple[Any, ...], list[_Known]] = {}
        self.referee: tuple[tuple[Any, ...], Referee] | None = None
        self.workspace = Workspace(folder)
        self.inputs: Inputs | None = None  # in a process of a stage's own

    def go(self) -> None:
        todo = [cell for cell in self.plan.cells if cell.id not in self.done]
        if not todo:
            return
        self.circumstances = _circumstances()
        try:
            for stage in self.plan.stages(todo):
                mode = stage.cells[0].mode
                if mode in MICRO_MODES:
                    run = self._run_micro
                elif mode in LIVE_MODES:
                    run = self._run_live
                elif mode == DEVICE_MODE:
                    run = self._run_device
                elif self.plan.cell_seconds is not None:
                    run = self._run_isolated
                else:
                    run = self._run_engines
                self.run_stage(stage, run)
        finally:
            self.workspace.remove()

    def run_stage(self, stage: Stage, run: Callable[[Stage], None] | None = None) -> None:
        """Measures the cells of a stage, in this process unless told; an error is theirs alone."""
        self.load_before = machine.load()
        try:
            (run or self._run_engines)(stage)
        except Exception as error:  # such as a workload that cannot be made
            failed = isinstance(error, isolation.ChildError | TamisError)
            reason = str(error) if failed else traceback.format_exc()
            for cell in stage.cells:
                if cell.id not in self.done:
                    self._write(cell, "error", {"reason": reason})

    def _run_live(self, stage: Stage) -> None:
        for cell in stage.cells:
            inputs = self._prepare(cell)
            report = functools.partial(self._report, cell)
            instrument = live.Instrument(cell, inputs, self.plan.max_seconds, report)
            measure = _Measure(cell, instrument, instrument)
            self._interleave([measure])
            engine = _engine_facts(Subject(cell.make_workload(), cell.engine, cell.parameters))
            facts = {
                "workload": _workload_facts(cell),
                "engine": engine,
                "threads": cell.threads,
                "n_subscriptions": cell.make_workload().n_subscriptions,
                "figures": instrument.figures(),
                "details": instrument.details,
            }
            self._finish(measure, facts)

    def _run_device(self, stage: Stage) -> None:
        """A part of the suite gpu; its lines are on disk as they come, beside the cell's file."""
        for cell in stage.cells:
            lines: list[device.Figure] = []
            share = float(dict(cell.overrides).get("share", 1))
            with (self.folder / f"{cell.id}.jsonl").open("w", encoding="utf-8") as file:
                report = functools.partial(self._report, cell)
                for line in device.measure(cell.workload, share, report):
                    lines.append(line)
                    file.write(json.dumps(line) + "\n")
                    file.flush()
            self._write(cell, "ok", {"lines": lines})

    def _run_isolated(self, stage: Stage) -> None:
        first = stage.cells[0]
        inputs = self._prepare(first)
        spec = {
            "folder": str(self.folder),
            "plan": self.plan.to_json(),
            "cells": [cell.to_json() for cell in stage.cells],
            "inputs": str(inputs.folder),
            "circumstances": self.circumstances,
        }
        truth = inputs.truth(_n_events(stage, first.make_workload()), first.deliver)
        if first.engine != CHECKER and not truth.exists():
            isolation.call("truth", spec, on_phase=lambda phase: self._report(first, phase))
        expired = ""
        try:
            isolation.call(
                "stage",
                spec,
                limit_s=self.plan.cell_seconds,
                on_phase=lambda phase: self._report(first, phase),
            )
        except isolation.ExpiredError as error:
            expired = str(error)
        known = {each["id"]: each for each in results.load(self.folder).cells}
        self.done = {id: each for id, each in known.items() if each["status"] in FINISHED}
        for cell in stage.cells:
            if expired and cell.id not in self.done:
                facts = {"workload": _workload_facts(cell), "cell_seconds": self.plan.cell_seconds}
                self._write(cell, "capped", {**facts, "reason": expired})
            else:
                self._report_written(cell, known[cell.id])

    def _prepare(self, cell: Cell) -> Inputs:
        """The files of the cell's workload, made in another process."""
        self._report(cell, "making subscriptions")
        inputs = self.workspace.inputs(cell)
        if not inputs.subscriptions.exists():
            isolation.call(
                "subscriptions",
                {"cell": cell.to_json(), "inputs": str(inputs.folder)},
                on_phase=lambda phase: self._report(cell, phase),
            )
        return inputs

    def _run_micro(self, stage: Stage) -> None:
        for cell in stage.cells:
            self._report(cell, "preparing")
            instrument = (modes.Encode if cell.mode == "encode" else modes.Parse)(cell)
            measure = _Measure(cell, instrument, instrument)
            self._interleave([measure])
            facts = {
                "workload": _workload_facts(cell),
                "n_measured": instrument.n_measured,
                "check": {"by": "counts", "of": "events and values, or nodes"},
            }
            for name in ("n_values", "n_nodes", "n_characters"):
                if hasattr(instrument, name):
                    facts[name] = getattr(instrument, name)
            self._finish(measure, facts)

    def _run_engines(self, stage: Stage) -> None:
        first = stage.cells[0]
        workload = self._workload(first)
        n_events = _n_events(stage, workload)
        self._report(first, "making events")
        events = workload.events(n_events).read_all().combine_chunks()
        subjects: dict[tuple[Any, ...], Subject] = {}
        # Alone in its process, and no batches to measure: the rest may be quick.
        is_single = self.inputs is not None and all(c.mode == "latency" for c in stage.cells)
        spare_threads = len(os.sched_getaffinity(0)) if is_single else 1
        for cell in stage.cells:
            key = (cell.engine, cell.parameters)
            if key not in subjects:
                subjects[key] = Subject(
                    workload,
                    cell.engine,
                    cell.parameters,
                    cell.threads,
                    keeps_subscribers=cell.deliver == "subscribers",
                    spare_threads=spare_threads,
                )
        cells_of = {
            key: [cell for cell in stage.cells if (cell.engine, cell.parameters) == key]
            for key in subjects
        }
        builds = self._build(subjects, cells_of)
        self._check(subjects, cells_of, events, first)
        measures = builds
        for mode in ("latency", "throughput"):
            measures += self._measure(mode, subjects, cells_of, events)
        for measure in measures:
            subject = subjects[(measure.cell.engine, measure.cell.parameters)]
            if not subject.wrong and not subject.error:
                facts = _subject_facts(subject, measure.cell)
                facts.update(_answer_facts(subject, measure, n_events))
                if self.inputs:  # nobody else's memory is in this process
                    facts["process_bytes"] = machine.process_bytes()
                self._finish(measure, facts)
        for key, subject in subjects.items():
            for cell in cells_of[key] if subject.wrong or subject.error else ():
                status = "wrong" if subject.wrong else "error"
                facts = _subject_facts(subject, cell)
                self._write(cell, status, {**facts, "reason": subject.wrong or subject.error})
            subject.release()

    def _build(
        self, subjects: Mapping[tuple[Any, ...], Subject], cells_of: Mapping[Any, list[Cell]]
    ) -> list[_Measure]:
        measures = []
        for key, subject in subjects.items():
            cell = next((each for each in cells_of[key] if each.mode == "build"), None)
            if cell:
                measures.append(_Measure(cell, self._builder(subject, cell)))
        self._interleave(measures)
        for measure in measures:
            subject = subjects[(measure.cell.engine, measure.cell.parameters)]
            subject.error = measure.error
        for key, subject in subjects.items():
            if subject.deployment is None and not subject.error:
                try:
                    self._builder(subject, cells_of[key][0])()
                except Exception:
                    subject.error = traceback.format_exc()
        return measures

    def _builder(self, subject: Subject, cell: Cell) -> modes.Step:
        n_all = subject.workload.n_subscriptions

        def build() -> dict[str, Lap]:
            return {
                "deployment": subject.build(
                    lambda rows: self._report(cell, f"building {rows:,} of {n_all:,}")
                )
            }

        return build

    def _check(
        self,
        subjects: Mapping[tuple[Any, ...], Subject],
        cells_of: Mapping[Any, list[Cell]],
        events: pa.Table,
        first: Cell,
    ) -> None:
        key = (first.workload, first.overrides, first.deliver)
        if self.referee is None or self.referee[0] != (*key, len(events)):
            truth = self.inputs.truth(len(events), first.deliver) if self.inputs else None
            self.referee = (
                (*key, len(events)),
                Referee(self._workload(first), events, first.deliver, truth),
            )
        referee = self.referee[1]
        own = next((each for each in subjects.values() if each.is_checker), None)
        if own is not None and not own.error:
            referee.borrow(own)
        for each, subject in subjects.items():
            if subject.error:
                continue
            cell = cells_of[each][-1]
            self._report(cell, "checking")
            outputs = sorted({c.output for c in cells_of[each] if c.output} | {"ids"})
            try:
                check(subject, referee, outputs, self.plan.max_seconds)
                subject.matcher.flush()  # auto has seen events now, and may want other engines
                if not subject.wrong:
                    subject.answers = collect(
                        subject.matcher,
                        events,
                        subject.workload.position,
                        first.deliver,
                        self.plan.max_seconds,
                    )
                    if all(c.mode == "latency" for c in cells_of[each]):
                        modes.show_singles(subject, events, first.deliver)
                    subject.matcher.flush()  # what it looks at now, it does not while measured
            except Exception:
                subject.error = traceback.format_exc()
                continue
            if subject.is_exact and not subject.wrong:
                self._compare_digests(key, subject, cells_of[each], referee)
        referee.borrow(None)
        referee.release()

    def _compare_digests(
        self,
        key: tuple[Any, ...],
        subject: Subject,
        cells: list[Cell],
        referee: Referee,
    ) -> None:
        """Exact engines agree on every event; naive says who is wrong where two do not."""
        mine = _Known(cells[0].engine_label, subject.answers, cells, subject)
        for other in self.known.setdefault(key, []):
            event = mine.answers.first_disagreement(other.answers)
            if event is None:
                continue
            right = digest_event(referee.answer(event))
            for known, against in ((mine, other), (other, mine)):
                if known.answers.digests[event] == right:
                    continue
                reason = f"wrong answer to event {event}: differs from {against.label} and naive"
                if known is mine:
                    matches = subject.matcher.match_many(
                        referee.events.slice(event, 1),
                        deliver=referee.deliver,
                        position=subject.workload.position,
                    )
                    found = difference(event, referee.answer(event), sort_ids(matches.ids), "batch")
                    if found:
                        subject.check["difference"] = found.to_json()
                        reason = f"wrong answer: {found}"
                    subject.wrong = reason
                else:
                    self._withdraw(known, reason)
            if subject.wrong:
                return
        # Cells that an earlier, interrupted part of this run measured: only their digest is left.
        for result in self.done.values():
            cell = results.cell_of(result)
            digest = result.get("digest") or {}
            if (cell.workload, cell.overrides, cell.deliver) != key or not digest.get("exact"):
                continue
            n_events = digest["n_events"]
            if n_events > len(mine.answers) or mine.answers.digest(n_events) == digest["value"]:
                continue
            reason = (
                f"wrong answer: the digest of {n_events} events differs between "
                f"{mine.label} and {cell.engine_label}"
            )
            subject.wrong = reason
            self._withdraw(_Known(cell.engine_label, Answers(), [cell]), reason)
            return
        self.known[key].append(mine)

    def _withdraw(self, known: _Known, reason: str) -> None:
        """Takes back the numbers of an engine found wrong after its own check."""
        if known.subject is not None:
            known.subject.wrong = reason
        for cell in known.cells:
            result = self.done.pop(cell.id, None)
            if result is not None:  # of an earlier stage: its file is written
                result = {**result, "status": "wrong", "reason": reason}
                result.pop("series", None)
                results.write(self.folder / f"{cell.id}.json", result)
                self._report(cell, "withdrawn", "wrong", reason)

    def _measure(
        self,
        mode: str,
        subjects: Mapping[tuple[Any, ...], Subject],
        cells_of: Mapping[Any, list[Cell]],
        events: pa.Table,
    ) -> list[_Measure]:
        seconds = modes.first_repetition_seconds(self.plan.repeat, self.plan.max_seconds)
        make: Callable[..., Any] = modes.Latency if mode == "latency" else modes.Throughput
        measures = []
        for key, subject in subjects.items():
            if subject.wrong or subject.error:
                continue
            for cell in cells_of[key]:
                if cell.mode == mode:
                    self._report(cell, "encoding events")
                    try:
                        instrument = make(subject, cell, events, seconds)
                    except Exception:
                        measure = _Measure(cell, dict)
                        measure.error = traceback.format_exc()
                    else:
                        measure = _Measure(cell, instrument, instrument)
                    measures.append(measure)
        self._interleave(measures)
        return measures

    def _interleave(self, measures: Sequence[_Measure]) -> None:
        for repetition in range(1, self.plan.repeat + 1):
            for measure in measures:
                self._report(measure.cell, f"repetition {repetition} of {self.plan.repeat}")
                measure.repeat(self.plan.max_seconds)

    def _finish(self, measure: _Measure, facts: dict[str, Any]) -> None:
        facts.update(
            repeat=self.plan.repeat, max_seconds=self.plan.max_seconds, was_cut=measure.was_cut
        )
        if measure.error:
            self._write(measure.cell, "error", {**facts, "reason": measure.error})
        else:
            self._write(measure.cell, "ok", {**facts, "series": measure.series()})

    def _write(self, cell: Cell, status: str, facts: Mapping[str, Any]) -> None:
        result = {
            "format": results.FORMAT,
            "id": cell.id,
            "status": status,
            "mode": cell.mode,
            "cell": cell.to_json(),
            **self.circumstances,
            "date": machine.now(),
            "load": {"before": self.load_before, "after": machine.load()},
            **facts,
        }
        results.write(self.folder / f"{cell.id}.json", result)
        if status in FINISHED:
            self.done[cell.id] = result
        self._report_written(cell, result)

    def _report_written(self, cell: Cell, result: Mapping[str, Any]) -> None:
        reason = str(result.get("reason", "")).strip().splitlines()
        self._report(cell, "written", result["status"], reason[-1] if reason else "")

    def _workload(self, cell: Cell) -> Workload:
        return self.inputs.workload(cell) if self.inputs else cell.make_workload()

    def _report(self, cell: Cell, phase: str, status: str = "", detail: str = "") -> None:
        self.on_progress(
            Progress(
                self.places[cell.id],
                len(self.places),
                cell,
                phase,
                time.monotonic() - self.begin,
                status,
                detail,
            )
        )


def _workload_facts(cell: Cell) -> dict[str, Any]:
    workload = cell.make_workload()
    return {
        "key": workload.key,
        "parameters": workload.parameters,
        "seed": workload.seed,
        "n_subscriptions": workload.n_subscriptions,
        "space": workload.space,
        "source": workload.source,
        "description": workload.description,
    }


def _n_events(stage: Stage, workload: Workload) -> int:
    """How many events a stage needs; for build alone, those of the check."""
    return max(cell.n_events for cell in stage.cells) or min(SAMPLE_EVENTS, workload.n_events)


def _engine_facts(subject: Subject) -> dict[str, Any]:
    engine = subject.facts
    presets = {each.name: each.preset for each in (engine.parameters if engine else ())}
    return {
        "name": subject.engine,
        "parameters": {**presets, **dict(subject.parameters)},
        "exact": subject.is_exact,
        "device": engine.device if engine else None,
    }


def _subject_facts(subject: Subject, cell: Cell) -> dict[str, Any]:
    return {
        "workload": _workload_facts(cell),
        "engine": _engine_facts(subject),
        "threads": subject.threads,
        "n_subscriptions": subject.workload.n_subscriptions,
        "check": subject.check,
    }


def _answer_facts(subject: Subject, measure: _Measure, n_made: int) -> dict[str, Any]:
    """What it answered, what that took beside time, and how many events were measured."""
    answers, instrument = subject.answers, measure.instrument
    n_events = measure.cell.n_events or n_made
    n_answered = min(n_events, len(answers))
    total = sum(answers.counts[:n_answered])
    facts: dict[str, Any] = {
        "n_events": n_events,
        "n_measured": subject.workload.n_subscriptions,
        "matches": {"n_events": n_answered, "total": total, "per_event": total / n_answered},
        "digest": {
            "value": answers.digest(n_answered),
            "n_events": n_answered,
            "exact": subject.is_exact,
        },
        "counters": {"n_events": len(answers), **answers.counters},
        "bytes": subject.bytes(),
        "segments": subject.matcher.stats()["segments"],
    }
    if subject.deployment:
        facts["deployment"] = subject.deployment.to_json()
    if subject.engine == "auto":
        facts["plan"] = subject.matcher.plan().to_dict()
    if instrument is not None:
        facts["n_measured"] = instrument.n_measured
    if measure.cell.mode == "throughput":
        facts["batch"] = instrument.batch
    return facts


# --- tasks of a stage's own process (child.py) ---


def run_stage(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Measures one stage of a run; its files are the result."""
    folder = Path(spec["folder"])
    plan = Plan.from_json(spec["plan"])

    def report(progress: Progress) -> None:
        if not progress.status:
            channel.phase(progress.phase)

    runner = _Runner(folder, plan, results.load(folder).cells, report)
    runner.circumstances = spec["circumstances"]
    runner.inputs = Inputs(spec["inputs"])
    channel.begin()
    runner.run_stage(_stage_of(spec))
    return {}


def write_truth(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Lets naive answer the events that the engines of a workload are checked on."""
    stage = _stage_of(spec)
    first, inputs = stage.cells[0], Inputs(spec["inputs"])
    workload = inputs.workload(first)
    n_events = _n_events(stage, workload)
    channel.phase("naive answers")
    events = workload.events(n_events).read_all().combine_chunks()
    Referee(workload, events, first.deliver, inputs.truth(n_events, first.deliver)).truth()
    return {}


def _stage_of(spec: Mapping[str, Any]) -> Stage:
    return Stage(tuple(Cell.from_json(cell) for cell in spec["cells"]))
