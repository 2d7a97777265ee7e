"""A run as a page of the documentation: tables, a plot, machine, date and command.

Single events get a table for each workload, or, if there are many workloads, one that has a row for
each and a column for each engine. The other modes get the tables of `tamis bench show`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tamis.bench import plots
from tamis.bench.judgement import JUDGED
from tamis.bench.plan import DEVICE_MODE
from tamis.bench.results import Result, Run, cell_of
from tamis.bench.suites import SUITES
from tamis.bench.tables import (
    MAIN_SERIES,
    count,
    cpu_us,
    duration,
    footer,
    is_ok,
    markdown_table,
    show,
    workload_label,
)

# More workloads than this are rows of one table.
MAX_SECTIONS = 8


def write(run: Run, path: str | Path, title: str | None = None) -> list[Path]:
    """Writes the page to `path` and its plots beside it, as <page>-<mode>.png."""
    path = Path(path)
    modes = list(dict.fromkeys(each["cell"]["mode"] for each in run.cells))
    pictures = []
    if any(is_ok(each) and each["cell"]["mode"] in plots.PLOTTED for each in run.cells):
        pictures = plots.write_png(run, path.with_suffix(".png"))
    suite = SUITES.get(run.about["plan"]["suite"])
    parts = [f"# {title or path.stem.replace('-', ' ').capitalize()}"]
    if suite:
        parts.append(f"{suite['description'][0].upper()}{suite['description'][1:]}.")
    parts.append(_how(run))
    parts += [f"![{plots.TITLES[_mode_of(run, each)]}]({each.name})" for each in pictures]
    judge = JUDGED.get(run.about["plan"]["suite"])
    if judge:
        parts.append(judge(run, path.with_name(f"{path.stem}-sizes.png")))
    if "latency" in modes and not (judge and run.about["plan"]["suite"] == "planner"):
        parts.append(_latency(run))
    shown = ("latency", DEVICE_MODE)  # the latter by its judge
    others = [each for each in run.cells if each["cell"]["mode"] not in shown]
    if others:
        some = Run(run.path, run.about, others)
        parts.append(show(some, markdown=True, bars=False, whole=run).strip())
    else:
        parts.append(footer(run, markdown=True))
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return [path, *pictures]


def _how(run: Run) -> str:
    plan = run.about["plan"]
    if plan["suite"] == DEVICE_MODE:
        return (
            "Answers to a sample of events were compared with those of naive before anything was "
            "measured ([how](../benchmark.md#on-a-gpu)). Times are wall time, medians."
        )
    text = (
        "Every answer was checked before a number was kept ([how](../benchmark.md)). Times are CPU "
        f"time, the minimum of up to {plan['repeat']} repetitions."
    )
    if plan.get("cell_seconds"):
        text += (
            f" Each engine had a process of its own and {plan['cell_seconds']:g} s for deploying, "
            "checking and measuring."
        )
    loads = [each["load"][when] for each in run.cells for when in each["load"]]
    busiest = max((each[0] for each in loads if each), default=0.0)
    cores = run.about["machine"].get("cores") or 1
    if busiest > 1.5 * cores:
        text += (
            f" The machine was shared meanwhile (load up to {busiest:.0f} on {cores} cores): "
            "ratios say more than times."
        )
    return text


def _mode_of(run: Run, picture: Path) -> str:
    """write_png names the mode only where there are several."""
    modes = [
        mode
        for mode in plots.PLOTTED
        if any(is_ok(each) and each["cell"]["mode"] == mode for each in run.cells)
    ]
    return next((mode for mode in modes if picture.stem.endswith(f"-{mode}")), modes[0])


def _latency(run: Run) -> str:
    results = [each for each in run.cells if each["cell"]["mode"] == "latency"]
    by_workload: dict[str, list[Result]] = {}
    for result in results:
        by_workload.setdefault(workload_label(result), []).append(result)
    if len(by_workload) > MAX_SECTIONS:
        return _overview(by_workload, run.plan.baseline)
    return "\n\n".join(
        _section(label, each, run.plan.baseline) for label, each in by_workload.items()
    )


def _section(label: str, results: Sequence[Result], baseline: str) -> str:
    """One workload: a row for each engine, the fastest first."""
    facts = results[0]["workload"]
    columns = [
        "engine",
        "CPU µs/event",
        f"× {baseline}",
        "p50",
        "p99",
        "deployment",
        "index",
        "B/constraint",
        "process",
        "work per event",
    ]
    good = sorted(filter(is_ok, results), key=_cpu)
    base = next((_cpu(each) for each in good if each["cell"]["engine"] == baseline), None)
    rows, notes = [], []
    for result in good:
        core, memory = result["series"]["core"]["summary"], result["bytes"]
        name = cell_of(result).engine_label
        check = result["check"]
        if check.get("approximate"):
            name += " ≈"
            notes.append(
                f"{name} missed none of the {check['matches']:,} matches to {check['events']} "
                f"events; {check['false_positive_rate']:.3%} of its answers are false"
            )
        if result["n_measured"] < result["n_events"]:
            name += " *"
            notes.append(
                f"{name}: the time limit left {result['n_measured']} of {result['n_events']} events"
            )
        fallback = _fallback(result)
        if fallback:
            notes.append(f"{name}: {fallback}")
        rows.append(
            [
                name,
                _three(_cpu(result)),
                _times(base, _cpu(result)),
                duration(core["p50_ns"]["median"]),
                duration(core["p99_ns"]["median"]),
                duration(result["deployment"]["cpu_ns"]),
                f"{memory['index'] / 2**20:.1f} MiB",
                f"{memory['per_constraint']:.1f}" if memory["per_constraint"] else "",
                _process(result),
                _work(result),
            ]
        )
    for result in results:
        if not is_ok(result):
            name = cell_of(result).engine_label
            reason = str(result.get("reason", "")).strip().splitlines()
            rows.append([name, result["status"].upper()])
            notes.append(f"{name}: {reason[-1] if reason else 'no reason'}")
    text = [f"## {label}", f"{facts['source']}: {facts['description']}."]
    if good:
        per_event = good[0]["matches"]["per_event"]
        text[1] += (
            f" {facts['n_subscriptions']:,} subscriptions, {good[0]['bytes']['n_constraints']:,} "
            f"constraints, {per_event:.4g} matches an event."
        )
    text.append(markdown_table(columns, rows))
    if notes:
        text.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(text)


def _overview(by_workload: dict[str, list[Result]], baseline: str) -> str:
    """A row for each workload: CPU µs per event, and how many times faster than the baseline."""
    every = [each for results in by_workload.values() for each in results]
    engines = list(dict.fromkeys(cell_of(each).engine_label for each in every))
    rows = []
    notes: list[str] = []
    for label, results in by_workload.items():
        found = {cell_of(each).engine_label: each for each in results}
        base = found.get(baseline)
        base_us = _cpu(base) if base and is_ok(base) else None
        row = [label]
        for engine in engines:
            result = found.get(engine)
            if result is None:
                row.append("")
            elif not is_ok(result):
                row.append(result["status"].upper())
                if result["status"] != "capped":
                    reason = str(result.get("reason", "")).strip().splitlines()
                    notes.append(f"{label} {engine}: {reason[-1] if reason else 'no reason'}")
            else:
                times = f" ({_times(base_us, _cpu(result))})" if engine != baseline else ""
                row.append(_three(_cpu(result)) + (times if base_us else ""))
        rows.append(row)
    text = f"CPU µs for an event, and in brackets how many times faster than {baseline}."
    parts = [text, markdown_table(["workload", *engines], rows)]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts)


def _cpu(result: Result) -> float:
    return cpu_us(result, MAIN_SERIES[result["mode"]])


def _times(base: float | None, value: float) -> str:
    return f"{_three(base / value)}×" if base and value else ""


def _three(value: float) -> str:
    """Three digits at least, and never an exponent."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _process(result: Result) -> str:
    """What the whole process held, where the engine had one of its own."""
    own = result.get("process_bytes", {}).get("own")
    return f"{own / 2**30:.2f} GiB" if own else ""


def _work(result: Result) -> str:
    """The engine's own counters for an event."""
    counters: dict[str, Any] = dict(result["counters"])
    n_events = max(1, counters.pop("n_events"))
    return ", ".join(
        f"{count(value / n_events)} {name}" for name, value in counters.items() if value
    )


def _fallback(result: Result) -> str:
    """How many filters another engine holds, because this one cannot index them."""
    engine, segments = result["cell"]["engine"], result["segments"]
    if engine == "auto":
        return ""
    n_others = sum(
        each.get("n_fallback_filters", 0) if each["engine"] == engine else each["n_filters"]
        for each in segments
    )
    n_all = sum(each["n_filters"] for each in segments)
    return f"{n_others:,} of {n_all:,} filters are in a fallback" if n_others else ""
