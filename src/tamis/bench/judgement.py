"""Pages that judge: the suite `ours` against its bars, the suite `planner` against the best engine.

Each gives the part of a report that says what was promised, what was measured, and whether it
holds; what failed is in the same table as what did not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tamis.bench import planner_grid, plots
from tamis.bench.claims import SIZES
from tamis.bench.gpu.page import page
from tamis.bench.results import Result, Run, cell_of
from tamis.bench.tables import (
    MAIN_SERIES,
    count,
    cpu_us,
    duration,
    is_ok,
    markdown_table,
    workload_label,
)
from tamis.bench.verdicts import HOLDS, numbers, numbers_table, verdicts


def _time(us: float | None) -> str:
    return "" if us is None else duration(us * 1000)


def ours(run: Run, picture: Path) -> str:
    """The claims and figures of the suite `ours`, and cost against size."""
    found = verdicts(run)
    rows = [
        [
            each.what,
            "single" if each.mode == "latency" else "batches",
            each.ours,
            _time(each.ours_us),
            _time(each.auto_us),
            each.rival,
            _time(each.rival_us),
            "" if each.ratio is None else f"{each.ratio:.3g}×",
            f"≥ {each.bar:g}×",
            HOLDS[each.holds],
        ]
        for each in found
    ]
    columns = ["workload", "events", "ours", "time", "auto", "best rival", "time", "ratio", "bar"]
    measured = [each for each in found if each.holds is not None]
    held = sum(bool(each.holds) for each in measured)
    parts = [
        "## Against the papers' engines",
        f"CPU time of an event, rank lookup included, one thread. {held} of {len(measured)} bars "
        "hold.",
        markdown_table([*columns, ""], rows),
        "## Figures",
        numbers_table(numbers(run)),
    ]
    sized = _sizes(run)
    if sized:
        plots.write_lines(sized, picture, "filters", "CPU time of an event, µs", run)
        rows = [
            [name, *(f"{count(n)}: {duration(us * 1000)}" for n, us in points)]
            for name, points in sized.items()
        ]
        widest = max(len(points) for points in sized.values())
        parts += [
            "## Cost against size",
            f"![cost against size]({picture.name})",
            markdown_table(["workload and engine", *[""] * widest], rows),
        ]
    return "\n\n".join(parts)


def _sizes(run: Run) -> dict[str, list[tuple[float, float]]]:
    """(filters, µs) of each workload and engine that was measured at several sizes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for workload, engine, _ in SIZES:
        for name in (engine, "auto"):
            points = {
                float(each["bytes"]["n_filters"]): cpu_us(each, "core")
                for each in run.cells
                if is_ok(each)
                and (cell := cell_of(each)).mode == "latency"
                and (cell.workload, cell.engine) == (workload, name)
                and cell.deliver == "subscriptions"
                and {key for key, _ in cell.overrides} <= {"n_subscriptions", "n_filters"}
            }
            if len(points) > 1:
                found[f"{workload}, {name}"] = sorted(points.items())
    return found


def planner(run: Run, picture: Path) -> str:
    """`auto` against the best engine of each workload."""
    by_workload: dict[str, list[Result]] = {}
    for result in run.cells:
        if cell_of(result).mode == "latency":
            by_workload.setdefault(workload_label(result), []).append(result)
    rows, ratios, failed = [], {}, []
    for label, results in by_workload.items():
        times = {
            cell_of(each).engine: cpu_us(each, MAIN_SERIES["latency"])
            for each in results
            if is_ok(each)
        }
        failed += [
            f"{label}, {cell_of(each).engine_label}: {each['status']}"
            for each in results
            if not is_ok(each)
        ]
        others = {name: us for name, us in times.items() if name != "auto"}
        if "auto" not in times or not others:
            continue
        best = min(others, key=lambda name: others[name])
        ratios[label] = times["auto"] / others[best]
        auto = next(each for each in results if cell_of(each).engine == "auto")
        rows.append(
            [
                label,
                _chosen(auto),
                _time(times["auto"]),
                best,
                _time(others[best]),
                f"{ratios[label]:.2f}",
                _mark(ratios[label]),
                ", ".join(
                    f"{name} {_time(us)}"
                    for name, us in sorted(others.items(), key=lambda each: each[1])[1:]
                ),
            ]
        )
    columns = ["workload", "auto took", "time", "best", "time", "ratio", "", "others"]
    n_all = len(ratios)
    good = sum(ratio <= planner_grid.GOOD for ratio in ratios.values())
    fair = sum(ratio <= planner_grid.LIMIT for ratio in ratios.values())

    def share(n: int) -> str:
        return f"{n} of {n_all} ({n / max(1, n_all):.0%})"

    parts = [
        "## auto against the best engine",
        f"Within {planner_grid.GOOD}× of the best engine on {share(good)}, bar "
        f"{planner_grid.GOOD_SHARE:.0%}; within {planner_grid.LIMIT:g}× on {share(fair)}, bar all. "
        "CPU time of a single event, encoded beforehand, the call included.",
        markdown_table(columns, rows),
    ]
    if failed:
        parts.append("\n".join(f"- {each}" for each in failed))
    return "\n\n".join(parts)


def _mark(ratio: float) -> str:
    if ratio <= planner_grid.GOOD:
        return ""
    return "above 1.3" if ratio <= planner_grid.LIMIT else "ABOVE 2"


def _chosen(result: Result) -> str:
    """The engines of its groups, the largest first."""
    n_of: dict[str, int] = {}
    for segment in result["plan"]["segments"]:
        for group in segment["groups"]:
            n_of[group["engine"]] = n_of.get(group["engine"], 0) + group["n_filters"]
    return " + ".join(sorted(n_of, key=lambda name: -n_of[name]))


def gpu(run: Run, picture: Path) -> str:
    """The bars of the suite `gpu`, and all its figures."""
    return page(run)


JUDGED: dict[str, Callable[[Run, Path], str]] = {"ours": ours, "planner": planner, "gpu": gpu}
"""What a report begins with, for the suites that have bars."""
