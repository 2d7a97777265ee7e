"""Modes about the live matcher, a file for each.

Each repetition is a process of its own, so that memory and caches are those of a program that does
nothing else. It gives laps, as every mode does, and figures: numbers with a bar that the project
has set itself, which counts for the workload and size it was set for.

    parent   Instrument(cell)()  ──►  child   TASKS[mode](spec, channel)
             figures(): best and median of the repetitions, the bar, and whether it holds
"""

from __future__ import annotations

from tamis.bench.live.figure import Figure
from tamis.bench.live.instrument import Instrument
from tamis.bench.live.table import FIGURES, TASKS

__all__ = ["FIGURES", "TASKS", "Figure", "Instrument"]
