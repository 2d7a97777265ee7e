"""Named grids: each suite is a list of entries, each entry a small grid of its own.

An entry's keys are the arguments of `plan.grid`; a missing `engines` means every engine that is
available. Presets for a whole suite stand beside its entries.
"""

from __future__ import annotations

from typing import Any

from tamis import workloads
from tamis.bench import claims, planner_grid
from tamis.bench.gpu.parts import PARTS
from tamis.errors import ArgumentError

Sizes = dict[str, dict[str, Any]]

# Planted, because at these sizes chance matches nothing, and the check would prove nothing.
_TINY: Sizes = {
    "pcm-default": {"n_filters": 300, "planted": 0.5},
    "hem-default": {"n_subscriptions": 200, "planted": 0.5},
    "clcb-default": {"n_subscriptions": 60, "planted": 0.5},
    "fpga-default": {"n_subscriptions": 300, "planted": 0.5},
}
_REDUCED: Sizes = {
    "pcm-default": {"n_filters": 25_000},
    "hem-default": {"n_subscriptions": 50_000},
    "clcb-default": {"n_subscriptions": 10_000},
    "fpga-default": {"n_subscriptions": 100_000},
}
_FULL: Sizes = {key: {} for key in _TINY}

# 000 delivers to its interfaces, each once; the other papers to subscriptions.
_DELIVER = {"pcm-default": "subscribers"}


def _entries(sizes: Sizes, **common: Any) -> list[dict[str, Any]]:
    return [
        {
            "workloads": [key],
            "overrides": overrides,
            "deliver": _DELIVER.get(key, "subscriptions"),
            **common,
        }
        for key, overrides in sizes.items()
    ]


SUITES: dict[str, dict[str, Any]] = {
    "smoke": {
        "description": "every mode at tiny sizes, in seconds: does the benchmark itself work?",
        "repeat": 2,
        "max_seconds": 2.0,
        "entries": [
            *_entries(_TINY, modes=["build", "latency", "throughput"], events=30),
            {"modes": ["encode"], "events": 200},
            {"modes": ["parse"], "overrides": {"n_subscriptions": 50}},
        ],
    },
    "defaults": {
        "description": "the four papers' defaults at full size, with every available engine",
        "repeat": 5,
        "max_seconds": 60.0,
        "entries": _entries(_FULL, modes=["build", "latency", "throughput"]),
    },
    "foundation": {
        "description": "encoders, parser, and naive on the four defaults at reduced sizes",
        "repeat": 5,
        "max_seconds": 20.0,
        "entries": [
            {"modes": ["encode"]},
            {"modes": ["parse"]},
            *_entries(
                _REDUCED, engines=["naive"], modes=["build", "latency", "throughput"], events=200
            ),
        ],
    },
    "live": {
        "description": "the live matcher at full size: loading, changes, durability, opening, "
        "calls, and matching during change",
        "repeat": 3,
        "max_seconds": 240.0,
        "entries": [
            {"modes": ["load", "change", "durable", "open"], "workloads": ["hem-default"]},
            {"modes": ["change"], "workloads": ["clcb-default"]},
            {"modes": ["move"], "workloads": ["clcb-default"], "engines": ["spatial-grid"]},
            {"modes": ["call"]},
            {"modes": ["churn"], "workloads": ["pcm-default"], "engines": ["naive", "ocm"]},
        ],
    },
    "papers": {
        "description": "single events on the four papers' defaults with every available engine, "
        "each in a process of its own",
        "repeat": 3,
        "max_seconds": 10.0,
        "cell_seconds": 300.0,
        "entries": _entries(_FULL, modes=["latency"], events=200),
    },
    "ours": {
        "description": "our engines against the papers', with the bars that they must pass: single "
        "events, batches, change, memory, threads, end to end, and cost against size",
        "repeat": 5,
        "max_seconds": 20.0,
        "entries": claims.entries(),
    },
    "planner": {
        "description": "auto against every engine that somebody might have chosen, on workloads of "
        "every kind and size",
        "repeat": 5,
        "max_seconds": 2.0,
        "entries": planner_grid.entries(),
    },
    "gpu": {
        "description": "the engines for GPUs on one, with the bars that they must pass: pinned "
        "memory to pinned memory, moves, the papers' latencies, end to end, CPU against GPU",
        "repeat": 1,
        "max_seconds": 600.0,
        "entries": [{"modes": ["gpu"], "parts": list(PARTS)}],
    },
    "papers-grid": {
        "description": "every variant of the four papers' workloads, every available engine, 60 s "
        "for each",
        "repeat": 3,
        "max_seconds": 6.0,
        "cell_seconds": 60.0,
        "entries": [
            {
                "workloads": [key],
                "deliver": _DELIVER.get(f"{family}-default", "subscriptions"),
                "modes": ["latency"],
                "events": 100,
            }
            for family in ("pcm", "hem", "clcb", "fpga")
            for key in workloads.keys(family)
            if not key.endswith("-default")
        ],
    },
}


def get(name: str) -> dict[str, Any]:
    """The suite of this name."""
    if name not in SUITES:
        raise ArgumentError(f"suite must be one of {', '.join(SUITES)}, not {name!r}")
    return SUITES[name]
