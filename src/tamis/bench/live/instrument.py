"""One repetition of a live mode for each call, in a process of its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tamis.bench import isolation
from tamis.bench.inputs import Inputs
from tamis.bench.live.opening import open_twice
from tamis.bench.live.table import FIGURES
from tamis.bench.measure import Lap
from tamis.bench.plan import Cell

if TYPE_CHECKING:
    pass


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
            result = open_twice(spec, self._inputs, self._on_phase)
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
