"""Benchmarks: every answer checked, one JSON file for each measurement.

    import tamis.bench
    run = tamis.bench.run(workloads=["pcm-default"], overrides={"n_filters": 1000}, events=100)
    print(tamis.bench.show(run))

`docs/benchmark.md` explains the modes, the files and how to compare runs.
"""

from tamis.bench.comparison import Comparison, compare
from tamis.bench.plan import MODES, Cell, Plan
from tamis.bench.results import Run, load
from tamis.bench.runner import resume, run
from tamis.bench.suites import SUITES
from tamis.bench.tables import show

__all__ = [
    "MODES",
    "SUITES",
    "Cell",
    "Comparison",
    "Plan",
    "Run",
    "compare",
    "load",
    "resume",
    "run",
    "show",
]
