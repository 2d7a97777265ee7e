"""The report of the suite: bars first, then what they stand on."""

from __future__ import annotations

from collections.abc import Sequence

from tamis.bench.gpu.matching import ON_DEVICE, ON_HOST
from tamis.bench.gpu.parts import Figure
from tamis.bench.gpu.verdicts import crossings, figures, find, numbers, of_bound, rate, share_of
from tamis.bench.results import Run
from tamis.bench.tables import count, duration, markdown_table
from tamis.bench.verdicts import numbers_table

# 000 table 4, µs on its GTX 460, and what a stream makes of them.
_PAPER_STEPS = {"input": 3.6, "copy input": 7.8, "kernel": 11.5, "copy results": 7.3, "reset": 2.2}
_PAPER_STREAM = 20.5


def page(run: Run) -> str:
    """The part of the report between its head and its foot."""
    share = share_of(run)
    lines = figures(run, share=share)
    parts = [_bars(lines)]
    if share != 1:
        parts.insert(0, f"A try, with {share:g} of the workloads' sizes: its figures mean nothing.")
    failed = [each for each in run.cells if each["status"] != "ok"]
    for make in (
        _bounds,
        _packed,
        _steps,
        _moves,
        _papers,
        _ccm,
        _end_to_end,
        _crossover,
        _kernels,
    ):
        text = make(lines)
        if text:
            parts.append(text)
    if failed:
        reasons = [(each["cell"]["workload"], str(each.get("reason", ""))) for each in failed]
        parts.append("## Without figures")
        parts.append(
            "\n".join(f"- {name}: {why.strip().splitlines()[-1]}" for name, why in reasons)
        )
    return "\n\n".join(parts)


def _time(seconds: float) -> str:
    return duration(seconds * 1e9)


def _bars(lines: Sequence[Figure]) -> str:
    found = numbers(lines)
    measured = [each for each in found if each.holds is not None]
    held = sum(bool(each.holds) for each in measured)
    return "\n\n".join(
        [
            "## Bars",
            f"{held} of {len(measured)} hold.",
            numbers_table(found),
        ]
    )


def _bounds(lines: Sequence[Figure]) -> str:
    rows = [
        [each["bound"], f"{each['bytes'] / each['seconds'] / 1e9:,.1f} GB/s"]
        for each in find(lines, figure="bound")
    ]
    if not rows:
        return ""
    text = "Copies of 256 MiB: to the device, back, and on the device (read and written)."
    return "\n\n".join(["## What the machine can do", text, markdown_table(["bound", ""], rows)])


def _packed(lines: Sequence[Figure]) -> str:
    rows = [
        [
            each["engine"],
            each["workload"],
            f"{each['n_filters']:,}",
            f"{each['n_events']:,}",
            _time(each["seconds"]),
            f"{count(rate(each))}/s",
            _way(each),
            f"{count(each['n_events'] / each['on_device_seconds'])}/s",
            f"{each['bytes'] / each['n_events']:.0f}",
            f"{each['n_pairs'] / each['n_events']:.2g}",
            f"{of_bound(each):.0%}",
        ]
        for each in find(lines, figure="packed")
    ]
    if not rows:
        return ""
    text = (
        "Packed events in pinned memory to pairs (event, filter) in pinned memory, medians, the "
        "better of two ways: kernels read the events over the bus, or parts are copied while "
        "others are matched; launch by launch, or all launches as a graph. The bus is copying the "
        "same bytes to the device and nothing else, in the same run. Every way's answers to a "
        "sample were those of naive."
    )
    columns = ["engine", "workload", "filters", "events", "time", "events", "way"]
    columns += ["events on the device", "B/event", "pairs/event", "of the bus"]
    return "\n\n".join(["## Pinned to pinned", text, markdown_table(columns, rows)])


def _way(figure: Figure) -> str:
    way = figure["way"]
    graph = figure.get("direct_graph_seconds" if way == "direct" else "in_parts_graph_seconds")
    return f"{way}, a graph" if graph == figure["seconds"] else str(way)


def _steps(lines: Sequence[Figure]) -> str:
    found = [each for each in find(lines, figure="steps") if "parameters" not in each]
    rows = [
        [
            each["engine"],
            f"{each['n_events']:,}",
            ", ".join(f"{name} {_time(seconds)}" for name, seconds in each["steps"].items()),
        ]
        for each in found
    ]
    if not rows:
        return ""
    table = markdown_table(["engine", "events", "steps"], rows)
    return "\n\n".join(["One launch, its steps waited for one by one:", table])


def _moves(lines: Sequence[Figure]) -> str:
    rows = [
        [
            each["workload"],
            f"{each['n_areas']:,}",
            _time(each["seconds"]),
            _time(each["bound_seconds"]),
            f"{of_bound(each):.0%}",
        ]
        for each in find(lines, figure="move")
    ]
    if not rows:
        return ""
    columns = ["workload", "areas", "moved and indexed again", "the bus", "of the bus"]
    return "\n\n".join(["## Every area moved", markdown_table(columns, rows)])


def _papers(lines: Sequence[Figure]) -> str:
    rows = [
        [
            each["engine"]
            + "".join(f" {name}={value:g}" for name, value in each["parameters"].items()),
            each["workload"],
            _time(each["seconds"]),
            _time(each["batch_seconds"]),
            f"{each['build_seconds']:.2f} s",
            f"{each['index_bytes'] / 1e6:,.1f} MB",
        ]
        for each in find(lines, figure="single")
    ]
    if not rows:
        return ""
    text = (
        "Encoded events to collected targets: the median of single events, and the mean of all in "
        "one call. Every answer was that of naive."
    )
    columns = ["engine", "workload", "single event", "in one call", "build", "index"]
    return "\n\n".join(["## The papers' engines", text, markdown_table(columns, rows)])


def _ccm(lines: Sequence[Figure]) -> str:
    found = [
        each
        for each in find(lines, figure="steps", engine="ccm")
        if each["parameters"]["filter_selection"] == 1
    ]
    if not found:
        return ""
    steps = found[0]["steps"]
    streams = [
        each["seconds"]
        for each in find(lines, figure="single", engine="ccm")
        if each["parameters"] == {"filter_selection": 1, "events_per_kernel": 1}
    ]
    paper = [_time(us / 1e6) for us in _PAPER_STEPS.values()]
    ours = [_time(steps[name]) for name in _PAPER_STEPS]
    rows = [
        [
            "paper, GTX 460",
            *paper,
            _time(sum(_PAPER_STEPS.values()) / 1e6),
            _time(_PAPER_STREAM / 1e6),
        ],
        ["here", *ours, _time(sum(steps.values())), _time(streams[0]) if streams else ""],
    ]
    columns = ["000 table 4", *_PAPER_STEPS, "sum", "with a stream"]
    return markdown_table(columns, rows)


def _end_to_end(lines: Sequence[Figure]) -> str:
    rows = [
        [
            each["engine"],
            f"{each['n_filters']:,}",
            f"{each['n_events']:,}",
            memory,
            f"{count(rate(each))}/s",
            _time(each["seconds"]),
            *(_time(each["steps"][name]) for name in ("encode", "match", "ids")),
        ]
        for figure, memory in (("end-to-end", "ordinary"), ("end-to-end-pinned", "pinned"))
        for each in find(lines, figure=figure)
    ]
    if not rows:
        return ""
    text = (
        "From a map column of Arrow through `Matcher.match_many` to `offsets` and `ids`, on all "
        "cores of the host, medians. In ordinary memory each thread encodes the rows that it "
        "matches: attributes and values by event, of which those of numbers are packed into pinned "
        "memory, which kernels read. In pinned memory (`tamis.gpu.pin`) kernels read the column "
        "itself. Pairs come back, are sorted by event, and ids are looked up for them. The steps "
        "at the right were measured one after the other, encoding on one thread; a pinned table is "
        "encoded there too, which it is not in one call."
    )
    columns = ["engine", "filters", "events", "memory", "events/s", "time"]
    columns += ["encode", "match", "ids"]
    return "\n\n".join(["## End to end", text, markdown_table(columns, rows)])


def _crossover(lines: Sequence[Figure]) -> str:
    rows = [
        [
            f"{each.n_filters:,}",
            f"{each.n_events:,}",
            _time(each.host),
            _time(each.device),
            "CPU" if each.host <= each.device else "GPU",
            f"{each.host / each.device:.2g}×",
            _time(each.auto),
            f"{each.auto_ratio:.2f}",
        ]
        for each in crossings(lines)
    ]
    if not rows:
        return ""
    text = (
        "A batch from Arrow to ids through the Matcher, on all cores of the host; `auto` beside "
        "the better of the two."
    )
    columns = ["filters", "events of a batch", ON_HOST, ON_DEVICE, "better", "CPU/GPU", "auto"]
    columns.append("auto/better")
    return "\n\n".join(["## CPU against GPU", text, markdown_table(columns, rows)])


def _kernels(lines: Sequence[Figure]) -> str:
    found = find(lines, figure="kernel")
    if not found:
        return ""
    names = list(dict.fromkeys(name for each in found for name in each["shares"]))
    rows = [
        [
            each["engine"],
            each["kernel"],
            _time(each["seconds"]),
            *(f"{each['shares'][name]:.0%}" if name in each["shares"] else "" for name in names),
        ]
        for each in found
    ]
    text = (
        "Shares of the peak by Nsight Compute, of each kernel's longest launch among the first; "
        "kernels that read events from pinned memory are bound by the bus, which has its own "
        "column above."
    )
    columns = ["engine", "kernel", "time", *names]
    return "\n\n".join(["## Kernels", text, markdown_table(columns, rows)])
