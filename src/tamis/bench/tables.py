"""Results as text: a table for each mode, bars of Unicode blocks, Markdown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.bench.comparison import Comparison
from tamis.bench.plan import DEVICE_MODE, LIVE_MODES, MODE_MEANINGS, MODES
from tamis.bench.results import Result, Run, cell_of

# The series that a mode's headline, its ratio and its bars stand for.
MAIN_SERIES = {
    "build": "deployment",
    "latency": "core",
    "throughput": "encoded",
}
BAR_WIDTH = 32
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass
class Table:
    """Rows of one mode; the cells of a table are text already."""

    mode: str
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    bars: list[tuple[str, str, float]] = field(default_factory=list)
    """(workload, engine or series, microseconds per unit)."""
    footnotes: list[str] = field(default_factory=list)


def show(
    run: Run,
    *,
    markdown: bool = False,
    bars: bool = True,
    color: bool = False,
    whole: Run | None = None,
) -> str:
    """The run as tables, one for each mode, never two modes in one.

    With `whole`, it is some cells of that run, and its footer is that one's.
    """
    parts = []
    for table in tables(run):
        if markdown:
            parts.append(f"### {table.title}\n\n" + markdown_table(table.columns, table.rows))
        else:
            parts.append(table.title + "\n" + _text(table.columns, table.rows))
            if bars and table.bars:
                parts.append(draw_bars(table.bars, color=color))
        if table.footnotes:
            lines = (f"- {each}" if markdown else f"  {each}" for each in table.footnotes)
            parts.append("\n".join(lines))
    parts.append(footer(whole or run, markdown=markdown))
    return "\n\n".join(parts) + "\n"


def tables(run: Run) -> list[Table]:
    """A table for each mode that the run has."""
    made = []
    for mode in MODES:
        results = [each for each in run.cells if each["cell"]["mode"] == mode]
        if results:
            make = _TABLES.get(mode, _micro_table)
            made.append(make(mode, results, run.plan.baseline))
    return made


def footer(run: Run, *, markdown: bool = False) -> str:
    """Machine, date, commit and command: without them a time says nothing."""
    about = run.about
    facts, git = about["machine"], about.get("git") or {}
    gibibytes = (facts.get("memory_bytes") or 0) / 2**30
    commit = _commit_of(git)
    lines = [
        *([str(facts["gpu"])] if facts.get("gpu") else []),
        f"{facts.get('cpu')}, {facts.get('cores')} cores, {facts.get('simd')}, "
        f"{gibibytes:.0f} GiB, {facts.get('system')} {facts.get('kernel')}"
        if "simd" in facts
        else f"{facts.get('cpu')}, {facts.get('cores')} cores",
        f"{about['date']}, tamis {about['versions']['tamis']}, commit {commit}",
        f"`{about['command']}`" if markdown else about["command"],
    ]
    for cell in run.cells:  # of a run that was resumed
        other = _commit_of(cell.get("git") or git)
        if other != commit:
            lines.append(f"{cell['id'].rsplit('-', 1)[0]}: commit {other}, {cell['date']}")
    if not run.is_complete:
        n_planned = len(about["plan"]["cells"])
        lines.append(f"not finished: {len(run.cells)} of {n_planned} cells")
    lines += about["plan"]["notes"]
    return "  \n".join(lines) if markdown else "\n".join(lines)


def _commit_of(git: dict[str, Any]) -> str:
    return (git.get("commit") or "unknown")[:12] + (" with changes" if git.get("dirty") else "")


def show_comparison(comparison: Comparison) -> str:
    """The comparison as a table; times per unit."""
    rows = [
        [
            row.mode,
            row.workload,
            row.engine,
            row.series,
            duration(row.old_ns),
            duration(row.new_ns),
            f"{row.ratio:.3f}",
            " ".join([row.verdict, *(f"({note})" for note in row.notes)]),
        ]
        for row in comparison.rows
    ]
    columns = ["mode", "workload", "engine", "series", "old CPU", "new CPU", "new/old", "verdict"]
    counts = dict.fromkeys(("improvement", "regression", "noise"), 0)
    for row in comparison.rows:
        counts[row.verdict] += 1
    summary = ", ".join(f"{count} {name}" for name, count in counts.items())
    return "\n".join([*([_text(columns, rows), ""] if rows else []), summary])


def draw_bars(bars: Sequence[tuple[str, str, float]], *, color: bool = False) -> str:
    """Bars of one scale for each workload; the longest is the slowest."""
    lines = []
    if len({name for _, name, _ in bars}) == 1:  # one engine: its workloads share one scale
        bars = [("", group, value) for group, _, value in bars]
    width = max(len(name) for _, name, _ in bars)
    for group in dict.fromkeys(group for group, _, _ in bars):
        mine = [(name, value) for each, name, value in bars if each == group]
        longest = max(value for _, value in mine) or 1.0
        lines.append(f"  {group}" if group else "")
        for name, value in mine:
            bar = bar_of(value / longest)
            bar = f"\x1b[36m{bar}\x1b[0m" if color else bar
            lines.append(f"    {name:<{width}} {bar} {duration(value * 1000)}")
    return "\n".join(line for line in lines if line)


def bar_of(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of blocks, an eighth of a character exact, and never quite nothing."""
    eighths = max(1, round(min(1.0, max(0.0, share)) * width * 8))
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")


def duration(ns: float) -> str:
    """Three digits with a unit: 276 ns, 10.8 µs, 1.04 ms, 2.30 s."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size * 0.9995:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{_three_digits(ns)} ns"


def count(value: float) -> str:
    """Three digits with a unit: 950, 12.3 k, 4.10 M."""
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= size * 0.9995:
            return f"{_three_digits(value / size)}{unit}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"


def cpu_us(result: Result, series: str, which: str = "min") -> float:
    """CPU microseconds per unit."""
    return float(result["series"][series]["summary"]["cpu_ns_per_unit"][which]) / 1000


def is_ok(result: Result) -> bool:
    return bool(result["status"] == "ok")


def _ratio(result: Result, results: Sequence[Result], baseline: str) -> str:
    """CPU time over that of the baseline engine on the same workload, threads and settings."""
    mine = cell_of(result)
    series = MAIN_SERIES[mine.mode]
    found = [
        each
        for each in results
        if is_ok(each)
        and (cell := cell_of(each)).engine == baseline
        and (cell.workload, cell.overrides, cell.deliver, cell.output, cell.batch)
        == (mine.workload, mine.overrides, mine.deliver, mine.output, mine.batch)
    ]
    same = [each for each in found if each["cell"]["threads"] == mine.threads]
    if not (same or found):
        return ""
    base = cpu_us((same or found)[0], series)
    return f"{cpu_us(result, series) / base:.3g}" if base else ""


def _common(result: Result) -> list[str]:
    per_constraint = result["bytes"]["per_constraint"]
    return [
        f"{result['matches']['per_event']:.4g}",
        "" if per_constraint is None else f"{per_constraint:.1f}",
    ]


def _spread_of(result: Result, series: str) -> str:
    low, high = cpu_us(result, series), cpu_us(result, series, "median")
    return f"+{(high / low - 1) * 100:.0f} %" if low else ""


def _rows(
    table: Table,
    results: Sequence[Result],
    fill: Callable[[Result], list[str]],
) -> Table:
    """Rows of cells with numbers; the others say why they have none."""
    series = MAIN_SERIES[table.mode]
    for result in results:
        cell = cell_of(result)
        names = [workload_label(result), cell.engine_label]
        if not is_ok(result):
            _say_why_not(table, names, result)
            continue
        check = result["check"]
        if check.get("approximate"):
            names[1] += " ≈"
            table.footnotes.append(
                f"{' '.join(names)} is approximate: it missed none of the matches, and "
                f"{check['false_positive_rate']:.3%} of its answers are false"
            )
        if result["n_measured"] < (result["n_events"] if table.mode != "build" else 0):
            names[1] += " *"
            table.footnotes.append(
                f"* {' '.join(names)}: the time limit left {result['n_measured']} of "
                f"{result['n_events']} events"
            )
        table.rows.append([*names, *fill(result)])
        table.bars.append((names[0], names[1], cpu_us(result, series)))
    return table


def workload_label(result: Result) -> str:
    cell = cell_of(result)
    extra = [cell.deliver] if cell.deliver == "subscribers" else []
    extra += [cell.output] if cell.output not in ("", "ids") else []
    return cell.workload_label + (f" ({', '.join(extra)})" if extra else "")


def _latency_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    def fill(result: Result) -> list[str]:
        core, from_dict = (result["series"][name]["summary"] for name in ("core", "dict"))
        return [
            duration(core["p50_ns"]["median"]),
            duration(core["p99_ns"]["median"]),
            duration(core["max_ns"]["max"]),
            f"{cpu_us(result, 'core'):.4g}",
            _spread_of(result, "core"),
            count(core["units_per_second"]["max"]),
            _ratio(result, results, baseline),
            duration(from_dict["p50_ns"]["median"]),
            duration(from_dict["p99_ns"]["median"]),
            *_common(result),
        ]

    columns = [
        "workload",
        "engine",
        "p50",
        "p99",
        "max",
        "CPU µs/event",
        "spread",
        "events/s",
        f"time/{baseline}",
        "dict p50",
        "dict p99",
        "matches/event",
        "B/constraint",
    ]
    table = _rows(Table(mode, f"latency: {MODE_MEANINGS[mode]}", columns), results, fill)
    calls = [
        result["series"]["call"]["summary"]["cpu_ns_per_unit"]["min"]
        for result in results
        if is_ok(result)
    ]
    if calls:
        table.footnotes.append(
            f"of every encoded event, a call into an empty matcher takes {duration(min(calls))}; "
            "it is not subtracted"
        )
    return table


def _throughput_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    def fill(result: Result) -> list[str]:
        encoded, arrow = (result["series"][name]["summary"] for name in ("encoded", "arrow"))
        return [
            str(result["batch"]),
            f"{cpu_us(result, 'encoded'):.4g}",
            _spread_of(result, "encoded"),
            f"{encoded['wall_ns_per_unit']['min'] / 1000:.4g}",
            count(encoded["units_per_second"]["max"]),
            _ratio(result, results, baseline),
            count(arrow["units_per_second"]["max"]),
            *_common(result),
        ]

    columns = [
        "workload",
        "engine",
        "batch",
        "CPU µs/event",
        "spread",
        "wall µs/event",
        "events/s",
        f"time/{baseline}",
        "events/s from Arrow",
        "matches/event",
        "B/constraint",
    ]
    return _rows(Table(mode, f"throughput: {MODE_MEANINGS[mode]}", columns), results, fill)


def _build_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    def fill(result: Result) -> list[str]:
        series, memory = result["series"]["deployment"], result["bytes"]
        lap = min(series["repetitions"], key=lambda each: int(each["cpu_ns"]))
        return [
            f"{result['n_subscriptions']:,}",
            duration(lap["cpu_ns"]),
            _spread_of(result, "deployment"),
            duration(min(each["wall_ns"] for each in series["repetitions"])),
            count(series["summary"]["units_per_second"]["max"]),
            _ratio(result, results, baseline),
            *(f"{memory[name] / 2**20:.1f}" for name in ("store", "table", "index")),
            _common(result)[1],
        ]

    columns = [
        "workload",
        "engine",
        "subscriptions",
        "CPU",
        "spread",
        "wall",
        "subscriptions/s",
        f"time/{baseline}",
        "store MiB",
        "table MiB",
        "index MiB",
        "B/constraint",
    ]
    return _rows(Table(mode, f"build: {MODE_MEANINGS[mode]}", columns), results, fill)


def _micro_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    unit = "event" if mode == "encode" else "predicate"
    columns = ["workload", "what", f"CPU ns/{unit}", "spread", f"{unit}s/s"]
    table = Table(mode, f"{mode}: {MODE_MEANINGS[mode]}", columns)
    for result in results:
        label = cell_of(result).workload_label
        if not is_ok(result):
            _say_why_not(table, [label], result)
            continue
        for name, series in result["series"].items():
            table.rows.append(
                [
                    label,
                    name,
                    f"{cpu_us(result, name) * 1000:.4g}",
                    _spread_of(result, name),
                    count(series["summary"]["units_per_second"]["max"]),
                ]
            )
            table.bars.append((label, name, cpu_us(result, name)))
    return table


def _live_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    columns = ["workload", "engine", "figure", "best", "median", "bar", "", "what it is"]
    table = Table(mode, f"{mode}: {MODE_MEANINGS[mode]}", columns)
    for result in results:
        cell = cell_of(result)
        names = [cell.workload_label, cell.engine_label]
        if not is_ok(result):
            _say_why_not(table, names, result)
            continue
        for name, figure in result["figures"].items():
            amount = functools.partial(quantity, unit=figure["unit"])
            table.rows.append(
                [
                    *names,
                    name,
                    amount(figure["best"]),
                    amount(figure["median"]),
                    _bar_text(figure),
                    {True: "holds", False: "MISSED", None: ""}[figure["holds"]],
                    figure["meaning"],
                ]
            )
        n_repetitions = len(next(iter(result["series"].values()))["repetitions"])
        table.footnotes.append(
            f"{' '.join(names)}: repetitions {n_repetitions}{_load_text(result)}"
        )
        table.footnotes += _live_notes(result)
    return table


_OF_BATCHES = ("packed", "end-to-end", "end-to-end-pinned", "crossover")


def _device_table(mode: str, results: Sequence[Result], baseline: str) -> Table:
    columns = ["part", "engine", "figure", "workload", "filters", "events", "time", "events/s"]
    columns.append("of its bound")
    table = Table(mode, f"{mode}: {MODE_MEANINGS[mode]}", columns)
    for result in results:
        part = result["cell"]["workload"]
        if not is_ok(result):
            _say_why_not(table, [part], result)
            continue
        for line in result["lines"]:
            seconds, n_events = line.get("seconds"), line.get("n_events")
            bound = line.get("bound_seconds")
            is_batch = line["figure"] in _OF_BATCHES  # of all its events
            table.rows.append(
                [
                    part,
                    line["engine"],
                    line.get("kernel") or f"{line['figure']} {line.get('bound', '')}".strip()
                    if line["figure"] in ("kernel", "bound")
                    else line["figure"],
                    line["workload"],
                    f"{line['n_filters']:,}" if "n_filters" in line else "",
                    f"{n_events:,}" if n_events is not None else "",
                    duration(seconds * 1e9) if seconds is not None else "",
                    count(n_events / seconds) if seconds and is_batch else "",
                    f"{bound / seconds:.0%}" if seconds and bound is not None else "",
                ]
            )
    return table


def _bar_text(figure: Mapping[str, Any]) -> str:
    """The bar; in brackets where it is for another workload or size."""
    for sign, name in (("≤", "at_most"), ("≥", "at_least")):
        if figure[name] is not None:
            text = f"{sign} {quantity(figure[name], figure['unit'])}"
            return text if figure["holds"] is not None else f"({text})"
    return ""


def _load_text(result: Result) -> str:
    """Who else was busy, where that was more than the machine has cores."""
    loads = [each[0] for each in result["load"].values() if each]
    cores = result["machine"].get("cores") or 1
    return f"; load {max(loads):.0f} on {cores} cores" if loads and max(loads) > cores else ""


def _live_notes(result: Result) -> list[str]:
    """What the figures were measured on, from the last repetition."""
    details, mode = result["details"], result["mode"]
    notes = []
    if mode == "churn":
        first, last = details["states"][0], details["states"][-1]["after"]
        notes.append(f"before the changes: {_state_text(first)}")
        notes.append(f"after them: {_state_text(last)}; flushed: {_state_text(details['quiet'])}")
    if mode == "open":
        for place, memory in enumerate(details["processes"], start=1):
            kinds = ", ".join(
                f"{name} {(memory['after'][name] - memory['before'][name]) / 2**20:.0f} MiB"
                for name in ("Rss", "Pss", "Private_Dirty", "Shared_Clean")
            )
            notes.append(f"process {place}, what opening added: {kinds}")
    if mode == "change":
        notes.append(
            f"{details['n_live']:,} subscriptions; the merge took {details['merge_seconds']:.2f} s"
        )
    if mode == "move":
        notes.append(f"{details['n_moved']:,} subscriptions have moved in place")
    if mode == "load":
        notes.append(
            f"resident {details['resident_bytes'] / 2**20:.0f} MiB, of which "
            f"{details['resident_bytes_before'] / 2**20:.0f} MiB before loading; "
            f"{details['n_constraints']:,} constraints"
        )
    return notes


def _state_text(state: Mapping[str, Any]) -> str:
    sizes = " + ".join(f"{each:,}" for each in state["segments"])
    return (
        f"segments of {sizes}, {state['n_delta_filters']:,} in the delta, {state['n_dead']:,} dead"
    )


def quantity(value: float, unit: str) -> str:
    """A figure of a live mode with its unit."""
    nanoseconds = {"s": 1e9, "us": 1e3, "ns": 1.0}
    if unit in nanoseconds:
        return ("-" if value < 0 else "") + duration(abs(value) * nanoseconds[unit])
    if unit == "1/s":
        return f"{count(value)}/s"
    return f"{value:,.0f} B" if unit == "B" else f"{value:.3g}"


def _say_why_not(table: Table, names: list[str], result: Result) -> None:
    """The row of a cell without a number, and the reason below."""
    reason = str(result.get("reason", "")).strip().splitlines()
    table.rows.append([*names, result["status"].upper()])
    table.footnotes.append(f"{' '.join(names)}: {reason[-1] if reason else 'no reason'}")


_TABLES: dict[str, Callable[[str, Sequence[Result], str], Table]] = {
    "latency": _latency_table,
    "throughput": _throughput_table,
    "build": _build_table,
    **dict.fromkeys(LIVE_MODES, _live_table),
    DEVICE_MODE: _device_table,
}


def _text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under one another: names to the left, numbers to the right."""
    filled = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *filled, strict=True)]
    is_number = [
        place > 1 and any(row[place][:1].isdigit() for row in filled)
        for place in range(len(columns))
    ]

    def line(row: Sequence[str]) -> str:
        parts = (
            each.rjust(width) if right else each.ljust(width)
            for each, width, right in zip(row, widths, is_number, strict=True)
        )
        return "  " + "  ".join(parts).rstrip()

    return "\n".join([line(columns), "  " + "  ".join("─" * w for w in widths), *map(line, filled)])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a document; rows may be shorter than the head."""

    def line(row: Sequence[Any]) -> str:
        return "| " + " | ".join(str(each).replace("|", "\\|") for each in row) + " |"

    filled = [[*row, *[""] * (len(columns) - len(row))] for row in rows]
    return "\n".join([line(columns), line(["---"] * len(columns)), *map(line, filled)])
