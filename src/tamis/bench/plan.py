"""Which cells a run has.

A cell is one measurement: workload × engine × parameters × threads × mode. Cells that share a
workload and the number of threads form a stage: their matchers live at the same time and their
repetitions are interleaved, because a noisy minute should hurt every engine and not one.

    Plan ── stages ── cells          with sequential=True each stage has one engine only;
                                     with cell_seconds it also has a process of its own

A live mode measures a matcher while it changes, is loaded or opened: each cell is a stage.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import tamis
from tamis import workloads as _workloads
from tamis.bench import suites
from tamis.bench.gpu import parts as device
from tamis.engines import Parameter
from tamis.errors import ArgumentError, UnavailableError

ENGINE_MODES = ("build", "latency", "throughput")
# Modes without an engine, with the workload that makes their input.
MICRO_MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "encode": (
        "pcm-default",
        {"n_filters": 100, "n_names": 5, "min_attributes": 5, "max_attributes": 5},
    ),
    "parse": ("hem-default", {"n_subscriptions": 10_000}),
}
MICRO_LABELS = {"encode": "5 integers an event", "parse": "10 BETWEENs a predicate"}
# Modes about the live matcher, with the workload and the threads that they have unless told.
LIVE_MODES: dict[str, tuple[str, dict[str, Any], int]] = {
    "load": ("hem-default", {}, 2),
    "change": ("hem-default", {}, 2),
    "move": ("clcb-default", {}, 1),
    "durable": ("hem-default", {}, 2),
    "open": ("hem-default", {}, 2),
    "call": ("pcm-default", {"n_filters": 100}, 1),
    "churn": ("pcm-default", {}, 1),
}
DEVICE_MODE = "gpu"  # a cell is a part of tamis.bench.gpu, whose name is in place of a workload
MODES = (*ENGINE_MODES, *MICRO_MODES, *LIVE_MODES, DEVICE_MODE)
MODE_MEANINGS = {
    "build": "subscribe_many and flush: deployment of the whole workload, and its bytes",
    "latency": "one event at a time: encoded beforehand, and from a Python dict",
    "throughput": "batches of events: encoded beforehand, and from Arrow",
    "encode": "the encoders alone: dict, Arrow flat, Arrow map, JSON lines (no engine)",
    "parse": "the parser alone, and subscribe_many (no engine)",
    "load": "subscribe_many and flush in a fresh process: seconds, and resident bytes",
    "change": "one subscribe, unsubscribe or move among all subscriptions, also during a merge",
    "move": "moves in tables, one by one, and beside matching",
    "durable": "changes a second that are in the log, with each way of syncing",
    "open": "opening a saved matcher in a fresh process, and what two processes share",
    "call": "what match of a dict costs beyond encoding and engine",
    "churn": "matching during constant change, against the same matcher left alone",
    "gpu": "a part of the suite gpu: what an engine does on a GPU, and what bounds it",
}

DELIVERS = ("subscriptions", "subscribers")
OUTPUTS = ("ids", "bitset", "count")

PRESET_REPEAT = 5
PRESET_MAX_SECONDS = 60.0
PRESET_BATCH = 4096
PRESET_ENCODE_EVENTS = 20_000
PRESET_LIVE_EVENTS = 500  # of the modes move, call and churn

_MATCHING = ("move", "call", "churn")  # live modes that match events
# Modes deploy, then match: build first, so that its last matcher serves the others.
_MODE_ORDER = {mode: place for place, mode in enumerate(MODES)}

Plain = int | float | str | bool
Pairs = tuple[tuple[str, Plain], ...]


@dataclass(frozen=True)
class Cell:
    """One measurement. What a mode does not use is empty, so that equal cells have equal ids."""

    mode: str
    workload: str
    overrides: Pairs = ()
    engine: str = ""
    parameters: Pairs = ()
    threads: int = 1
    deliver: str = ""
    output: str = ""
    batch: int = 0
    n_events: int = 0

    @property
    def id(self) -> str:
        """A readable name with a digest of everything that tells cells apart."""
        text = json.dumps(self.to_json(), sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        parts = [self.mode, self.workload, *([self.engine] if self.engine else []), digest]
        return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))

    @property
    def workload_label(self) -> str:
        if self.mode in MICRO_MODES:
            base = MICRO_MODES[self.mode][1]
            shown = [f"{name}={value}" for name, value in self.overrides if base.get(name) != value]
            return " ".join([MICRO_LABELS[self.mode], *shown])
        return " ".join([self.workload, *(f"{name}={value}" for name, value in self.overrides)])

    @property
    def engine_label(self) -> str:
        parts = [self.engine, *(f"{name}={value:g}" for name, value in self.parameters)]
        return " ".join(parts) + (f" ×{self.threads}" if self.threads != 1 else "")

    def make_workload(self) -> _workloads.Workload:
        return _workloads.get(self.workload, **dict(self.overrides))

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "overrides": dict(self.overrides),
            "parameters": dict(self.parameters),
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Cell:
        return cls(
            **{
                **facts,
                "overrides": tuple(facts["overrides"].items()),
                "parameters": tuple(facts["parameters"].items()),
            }
        )


@dataclass(frozen=True)
class Stage:
    """Cells of one workload and number of threads, whose repetitions are interleaved."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Plan:
    """All cells of a run, and how long to measure each."""

    cells: tuple[Cell, ...]
    repeat: int = PRESET_REPEAT
    max_seconds: float = PRESET_MAX_SECONDS
    sequential: bool = False
    cell_seconds: float | None = None
    baseline: str = ""
    suite: str = ""
    notes: tuple[str, ...] = field(default=())

    def stages(self, cells: Iterable[Cell] | None = None) -> list[Stage]:
        """The stages of `cells` (all of them unless told), in the order of the plan."""
        by_key: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in self.cells if cells is None else cells:
            key: tuple[Any, ...] = (cell.workload, cell.overrides, cell.threads, cell.deliver)
            if cell.mode in MICRO_MODES:
                key = (cell.mode, *key)
            elif cell.mode in LIVE_MODES or cell.mode == DEVICE_MODE:
                key = (cell.id,)
            elif self.sequential or self.cell_seconds is not None:
                key = (*key, cell.engine, cell.parameters)
            by_key.setdefault(key, []).append(cell)
        return [
            Stage(tuple(sorted(each, key=lambda cell: _MODE_ORDER[cell.mode])))
            for each in by_key.values()
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "repeat": self.repeat,
            "max_seconds": self.max_seconds,
            "sequential": self.sequential,
            "cell_seconds": self.cell_seconds,
            "baseline": self.baseline,
            "notes": list(self.notes),
            "cells": [{"id": cell.id, **cell.to_json()} for cell in self.cells],
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Plan:
        cells = [{key: value for key, value in c.items() if key != "id"} for c in facts["cells"]]
        return cls(
            **{
                **facts,
                "notes": tuple(facts["notes"]),
                "cells": tuple(Cell.from_json(cell) for cell in cells),
            }
        )


def make(
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
) -> Plan:
    """The plan of a suite, or of a grid given directly.

    Values in `overrides` and `parameters` may be lists: each of their values makes cells of its
    own. A name may be for one workload or engine alone: "hem-default:n_subscriptions", "hem:g".
    With a suite, `overrides` change the workloads that it has. `parts` are of the suite "gpu".
    """
    presets: dict[str, Any] = {"repeat": PRESET_REPEAT, "max_seconds": PRESET_MAX_SECONDS}
    direct: dict[str, Any] = {
        "workloads": workloads,
        "modes": modes,
        "events": events,
        "batch": batch,
        "deliver": deliver,
        "output": output,
    }
    if suite is None:
        entries: list[dict[str, Any]] = [{name: value for name, value in direct.items() if value}]
        if events is not None:
            entries[0]["events"] = events
    else:
        for name, value in direct.items():
            if value:
                raise ArgumentError(f"{name} must not be given with a suite, which has its own")
        presets = suites.get(suite)
        entries = [dict(entry) for entry in presets["entries"]]
    if parts:
        if suite != DEVICE_MODE:
            raise ArgumentError("parts must be given with the suite gpu, which alone has them")
        entries = [{**entry, "parts": parts} for entry in entries]
    cells: list[Cell] = []
    notes: list[str] = []
    used_parameters: set[str] = set()
    for entry in entries:
        if "parts" in entry:
            cells += _device_cells(entry["parts"], overrides or {})
            continue
        changes = dict(overrides or {})
        if seed is not None:
            changes["seed"] = seed
        entry["overrides"] = {**entry.get("overrides", {}), **changes}
        if engines:
            entry["engines"] = engines
        if threads:
            entry["threads"] = threads
        cells += grid(
            **entry, parameters=parameters or {}, notes=notes, used_parameters=used_parameters
        )
    unused = [name for name in parameters or {} if name not in used_parameters]
    if unused:
        raise ArgumentError(
            f"a parameter must belong to one of the engines, and {unused[0]} does not; "
            "see tamis bench list"
        )
    repeat = _check_count("repeat", presets["repeat"] if repeat is None else repeat)
    max_seconds = presets["max_seconds"] if max_seconds is None else max_seconds
    if not max_seconds > 0:
        raise ArgumentError(f"max_seconds must be a number above 0, not {max_seconds!r}")
    cell_seconds = presets.get("cell_seconds") if cell_seconds is None else cell_seconds
    if cell_seconds is not None and not cell_seconds > 0:
        raise ArgumentError(f"cell_seconds must be a number above 0, not {cell_seconds!r}")
    labels = [cell.engine for cell in cells if cell.engine]
    if baseline is not None and baseline not in labels:
        raise ArgumentError(
            f"baseline must be one of the engines measured ({', '.join(dict.fromkeys(labels))}), "
            f"not {baseline!r}"
        )
    return Plan(
        cells=tuple(dict.fromkeys(cells)),
        repeat=repeat,
        max_seconds=float(max_seconds),
        sequential=sequential,
        cell_seconds=None if cell_seconds is None else float(cell_seconds),
        baseline=baseline or (labels[0] if labels else ""),
        suite=suite or "",
        notes=tuple(dict.fromkeys(notes)),
    )


def grid(
    *,
    workloads: Sequence[str] = (),
    engines: Sequence[str] = (),
    modes: Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    threads: Sequence[int] = (),
    events: int | None = None,
    batch: int | None = None,
    deliver: str | None = None,
    output: str | None = None,
    notes: list[str] | None = None,
    used_parameters: set[str] | None = None,
) -> list[Cell]:
    """The cells of one grid; what was left out or adapted is added to `notes`."""
    notes = [] if notes is None else notes
    used_parameters = set() if used_parameters is None else used_parameters
    modes = modes or ("latency", "throughput")
    for mode in modes:
        _check_choice("mode", mode, MODES)
    if DEVICE_MODE in modes:
        raise ArgumentError("the mode gpu must be measured by its suite: --suite gpu [--part NAME]")
    deliver = _check_choice("deliver", deliver or "subscriptions", DELIVERS)
    output = _check_choice("output", output or "ids", OUTPUTS)
    batch = _check_count("batch", PRESET_BATCH if batch is None else batch)
    if events is not None:
        _check_count("events", events)
    for count in threads:
        _check_count("threads", count)
    engine_modes = [mode for mode in modes if mode in ENGINE_MODES]
    live_modes = [mode for mode in modes if mode in LIVE_MODES]
    if engine_modes and not workloads:
        raise ArgumentError(
            f"a workload must be given for the mode {engine_modes[0]}, and there is none; "
            "see tamis bench list"
        )
    bases: list[tuple[str, dict[str, Any], list[str]]]
    bases = [(key, {}, [*engine_modes, *live_modes]) for key in workloads]
    if not workloads:
        bases += [(*LIVE_MODES[mode][:2], [mode]) for mode in live_modes]
    bases = [base for base in bases if base[2]]
    bases += [(*MICRO_MODES[mode], [mode]) for mode in modes if mode in MICRO_MODES]
    sizes = _overrides_of([(key, base) for key, base, _ in bases], overrides or {}, notes)
    # What is measured of a live matcher is mostly not the engine: one is enough unless told.
    if not engines and live_modes and not engine_modes:
        engines = ("auto",)
    chosen = _choose_engines(engines, parameters or {}, notes, used_parameters)
    cells = []
    for (key, base, its_modes), variants in zip(bases, sizes, strict=True):
        for variant in variants:
            settings = {**base, **variant}
            workload = _workloads.get(key, **settings)
            pairs = tuple(sorted(settings.items()))
            for mode in its_modes:
                if mode == "encode":
                    cells.append(Cell(mode, key, pairs, n_events=events or PRESET_ENCODE_EVENTS))
                elif mode == "parse":
                    cells.append(Cell(mode, key, pairs))
            with_engine = [mode for mode in its_modes if mode not in MICRO_MODES]
            for (engine, values), mode in itertools.product(chosen, with_engine):
                for count in threads or (LIVE_MODES[mode][2] if mode in LIVE_MODES else 1,):
                    common = (mode, key, pairs, engine, values, count)
                    if mode in LIVE_MODES:
                        n_events = events or PRESET_LIVE_EVENTS if mode in _MATCHING else 0
                        cells.append(Cell(*common, n_events=n_events))
                        continue
                    n_events = {
                        "latency": events or workload.n_events,
                        "throughput": events or max(workload.n_events, batch),
                        "build": 0,
                    }[mode]
                    cells.append(
                        Cell(
                            *common,
                            deliver,
                            output if mode != "build" else "",
                            batch if mode == "throughput" else 0,
                            n_events,
                        )
                    )
    return cells


def _device_cells(parts: Sequence[str], overrides: Mapping[str, Any]) -> list[Cell]:
    """Cells of the suite gpu; `share` makes its workloads smaller, to try it."""
    device.require_gpu()
    unknown = [name for name in overrides if name != "share"]
    if unknown:
        raise ArgumentError(f"the suite gpu has the one parameter share, and not {unknown[0]}")
    share = overrides.get("share", 1)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ArgumentError(f"share must be a number above 0 and up to 1, not {share!r}")
    pairs: Pairs = (("share", share),) if share != 1 else ()
    return [Cell(DEVICE_MODE, device.check_part(name), pairs) for name in dict.fromkeys(parts)]


def _overrides_of(
    bases: Sequence[tuple[str, Mapping[str, Any]]], overrides: Mapping[str, Any], notes: list[str]
) -> list[list[dict[str, Any]]]:
    """For each workload the combinations of its overrides; a name that none has is an error."""
    chosen: list[dict[str, list[Any]]] = [{} for _ in bases]
    for name, values in overrides.items():
        target, _, parameter = name.rpartition(":")
        accepted: list[int] = []
        refused: list[int] = []
        for place, (key, _) in enumerate(bases):
            if target not in ("", key):
                continue
            workload = _workloads.get(key)
            known = {*workload.parameters, "n_subscriptions"}
            (accepted if parameter in known else refused).append(place)
        if not accepted:
            places = refused or range(len(bases))
            asked = [bases[place][0] for place in places]
            if target and not refused:
                raise ArgumentError(
                    f"{name} must name one of the workloads ({', '.join(asked)}), not {target}"
                )
            _workloads.get(asked[0], **{parameter: 0})  # raises and says what there is
        for place in refused:
            notes.append(f"{bases[place][0]} has no parameter {parameter} and is left as it is")
        for place in accepted:
            size = _workloads.get(bases[place][0]).size_parameter
            chosen[place][size if parameter == "n_subscriptions" else parameter] = _listed(values)
    return [_product(each) for each in chosen]


def _choose_engines(
    names: Sequence[str], parameters: Mapping[str, Any], notes: list[str], used: set[str]
) -> list[tuple[str, Pairs]]:
    """(engine, parameters) for each combination."""
    every = {engine.name: engine for engine in tamis.engines()}
    if not names:
        names = [engine.name for engine in every.values() if engine.available]
        # naive first: the others are measured against it, and checked with its answers.
        names.sort(key=lambda name: name != "naive")
        for engine in every.values():
            if not engine.available:
                notes.append(f"{engine.name} is left out: {engine.unavailable}")
    chosen: list[tuple[str, Pairs]] = []
    for name in dict.fromkeys(names):
        if name != "auto" and name not in every:
            raise ArgumentError(f"engine must be auto or one of {', '.join(every)}, not {name!r}")
        if name != "auto" and not every[name].available:
            raise UnavailableError(f"engine {name} cannot run here: {every[name].unavailable}")
        known = {each.name: each for each in every[name].parameters} if name != "auto" else {}
        values: dict[str, list[Any]] = {}
        for key, given in parameters.items():
            target, _, parameter = key.rpartition(":")
            if target not in ("", name) or parameter not in known:
                continue
            used.add(key)
            values[parameter] = [
                _check_parameter(name, known[parameter], v) for v in _listed(given)
            ]
        chosen += [(name, tuple(sorted(each.items()))) for each in _product(values)]
    return chosen


def _check_parameter(engine: str, parameter: Parameter, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(f"{engine}:{parameter.name} must be a number, not {value!r}")
    if not parameter.low <= value <= parameter.high:
        raise ArgumentError(
            f"{engine}:{parameter.name} must be from {parameter.low:g} to {parameter.high:g}, "
            f"not {value:g}"
        )
    return value


def _product(choices: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(choices, each, strict=True)) for each in itertools.product(*choices.values())]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    return value


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a positive integer, not {value!r}")
    return value
