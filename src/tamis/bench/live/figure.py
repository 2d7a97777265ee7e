"""A number that a live mode gives, with the bar that the project has set itself."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.bench.plan import Cell

HEM = "hem-default"
"""The workload that most bars are set for: 1M subscriptions."""


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
