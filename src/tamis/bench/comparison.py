"""Two runs side by side: what became faster, what slower, and what is only noise.

For each series of each cell that both runs have, the minimum CPU time per unit is compared:

    ratio = new minimum / old minimum          below 1: faster
    noise   if either side has fewer than 3 repetitions,
            or the intervals [minimum, median] of the two overlap,
            or the change is no larger than the wider of the two intervals, in per cent,
            or no larger than 3 %
    else    improvement (ratio < 1) or regression (ratio > 1)

The minimum is the time without disturbance; how far the median lies above it tells how disturbed
the machine was, and a change smaller than that cannot be told from disturbance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis.bench.machine import COMPARED_FACTS
from tamis.bench.results import Result, Run, cell_of

MIN_REPETITIONS = 3
# Even minima of an undisturbed machine differ by this much: layout of memory, clock rates.
NOISE_FLOOR = 0.03

IMPROVEMENT, REGRESSION, NOISE = "improvement", "regression", "noise"


@dataclass(frozen=True)
class Row:
    """One series of one cell in both runs; times in CPU nanoseconds per unit."""

    cell_id: str
    mode: str
    workload: str
    engine: str
    series: str
    old_ns: float
    new_ns: float
    ratio: float
    verdict: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """Every series that two runs share, and what they do not."""

    rows: list[Row]
    warnings: list[str] = field(default_factory=list)

    @property
    def has_regression(self) -> bool:
        return any(row.verdict == REGRESSION for row in self.rows)


def verdict(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[float, str]:
    """(ratio, verdict) of two series as the files have them; see the rule above."""
    a, b = (each["summary"]["cpu_ns_per_unit"] for each in (old, new))
    if a["min"] <= 0 or b["min"] <= 0:  # too short for the clock of CPU time
        return 1.0, NOISE
    ratio = b["min"] / a["min"]
    if min(len(old["repetitions"]), len(new["repetitions"])) < MIN_REPETITIONS:
        return ratio, NOISE
    overlap = a["min"] <= b["median"] and b["min"] <= a["median"]
    change = max(ratio, 1 / ratio) - 1
    spread = max(each["median"] / each["min"] - 1 for each in (a, b))
    if overlap or change <= max(spread, NOISE_FLOOR):
        return ratio, NOISE
    return ratio, IMPROVEMENT if ratio < 1 else REGRESSION


def compare(old: Run, new: Run) -> Comparison:
    """Compares the cells that both runs have; two single files are compared whatever they are."""
    warnings = _machine_warnings(old.about, new.about)
    old_cells = {each["id"]: each for each in old.cells}
    new_cells = {each["id"]: each for each in new.cells}
    if len(old_cells) == len(new_cells) == 1 and old.path.is_file() and new.path.is_file():
        pairs = [(old.cells[0], new.cells[0])]
        warnings += _cell_warnings(*pairs[0])
    else:
        pairs = [(old_cells[id], new_cells[id]) for id in old_cells if id in new_cells]
        for name, ids, others in (
            ("the old run", old_cells, new_cells),
            ("the new run", new_cells, old_cells),
        ):
            alone = [id for id in ids if id not in others]
            if alone:
                warnings.append(f"{len(alone)} cells are only in {name}: {', '.join(alone[:3])} …")
    rows: list[Row] = []
    for before, after in pairs:
        for name, result in (("old", before), ("new", after)):
            if result["status"] != "ok":
                warnings.append(f"{result['id']}: no number in the {name} run: {result['status']}")
        rows += _rows(before, after)
    if not pairs:
        warnings.append("the runs have no cell in common")
    return Comparison(rows, warnings)


def _rows(before: Result, after: Result) -> list[Row]:
    cell = cell_of(after)
    rows = []
    for name, new in after.get("series", {}).items():
        old = before.get("series", {}).get(name)
        if old is None or name == "call":  # the cost of a call is there to judge by
            continue
        notes = []
        if old["n"] != new["n"]:
            notes.append(f"{old['n']} and {new['n']} {new['unit']}s measured")
        digests = [(each.get("digest") or {}) for each in (before, after)]
        if (
            digests[0].get("n_events") == digests[1].get("n_events")
            and digests[0].get("exact")
            and digests[1].get("exact")
            and digests[0]["value"] != digests[1]["value"]
        ):
            notes.append("the answers differ")
        ratio, judged = verdict(old, new)
        rows.append(
            Row(
                after["id"],
                cell.mode,
                cell.workload_label,
                cell.engine_label,
                name,
                old["summary"]["cpu_ns_per_unit"]["min"],
                new["summary"]["cpu_ns_per_unit"]["min"],
                ratio,
                judged,
                tuple(notes),
            )
        )
    return rows


def _machine_warnings(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    warnings = []
    for fact in COMPARED_FACTS:
        before, after = old["machine"].get(fact), new["machine"].get(fact)
        if before != after:
            warnings.append(f"the machines differ in {fact}: {before} and {after}")
    for name in ("compiler", "python"):
        before, after = old["versions"].get(name), new["versions"].get(name)
        if before != after:
            warnings.append(f"the versions of {name} differ: {before} and {after}")
    return warnings


def _cell_warnings(before: Result, after: Result) -> list[str]:
    old, new = before["cell"], after["cell"]
    return [
        f"the cells differ in {name}: {old[name]} and {new[name]}"
        for name in new
        if old[name] != new[name]
    ]
