"""What our engines must show: the bars of the suite `ours`, and the cells that measure them.

A claim compares two times of one run on one workload: of our engine, and of the best of its rivals.
What a run says about them is in verdicts.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tamis


@dataclass(frozen=True)
class Claim:
    """Ours is at least so many times as fast as the best rival, for an event."""

    what: str
    workload: str
    ours: str
    rivals: tuple[str, ...]
    single: float | None = None
    """The bar for single events (mode latency), and for batches (mode throughput)."""
    batch: float | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    deliver: str = "subscriptions"
    output: str = "ids"
    events: int = 500

    @property
    def engines(self) -> tuple[str, ...]:
        known = {engine.name for engine in tamis.engines() if engine.available}
        wanted = (self.ours, "auto", *self.rivals)
        return tuple(name for name in wanted if name == "auto" or name in known)

    def modes(self) -> dict[str, float]:
        bars = {"latency": self.single, "throughput": self.batch}
        return {mode: bar for mode, bar in bars.items() if bar is not None}


TUPLE, BLOCK, GRID = "tuple-key", "block-bitmap", "spatial-grid"
_OTHERS = ("naive", "ocm", "sff", "opindex", "be-tree", "block-bitmap")
_SUBSCRIBERS: dict[str, Any] = {"deliver": "subscribers"}

CLAIMS: tuple[Claim, ...] = (
    Claim("pcm-default", "pcm-default", TUPLE, ("ocm",), 30, 80, **_SUBSCRIBERS),
    Claim("pcm, Zipf names", "pcm-zipf", TUPLE, ("ocm",), 60, **_SUBSCRIBERS),
    Claim("pcm, 9 attributes", "pcm-attributes-9", TUPLE, ("ocm",), 70, **_SUBSCRIBERS),
    Claim("pcm, 2.5M filters", "pcm-2.5m", TUPLE, ("ocm",), 35, **_SUBSCRIBERS),
    Claim("pcm, 10 names", "pcm-names-10", TUPLE, ("sff", "ocm"), 10, **_SUBSCRIBERS),
    Claim(
        "pcm, 1-2 constraints",
        "pcm-constraints-1-to-2",
        TUPLE,
        ("sff", "ocm"),
        10,
        **_SUBSCRIBERS,
    ),
    Claim("pcm, 20 attributes", "pcm-attributes-20", TUPLE, _OTHERS, 10, **_SUBSCRIBERS),
    Claim("pcm, 50 attributes", "pcm-attributes-50", TUPLE, _OTHERS, 10, **_SUBSCRIBERS),
    Claim("hem-default", "hem-default", BLOCK, ("hem",), 20, 50, events=4096),
    Claim("hem, w = 0.1", "hem-w-0.1", BLOCK, ("hem",), 100),
    Claim("hem, w = 0.5", "hem-w-0.5", BLOCK, ("hem",), 3, 8, events=4096),
    Claim("hem, ψS = 5", "hem-psi-s-5", BLOCK, ("hem",), 2, 6, events=4096),
    Claim(
        "hem, w = 0.9, ψS = 5 (616k matches), bitsets",
        "hem-w-0.9-psi-s-5",
        BLOCK,
        ("hem",),
        batch=5,
        output="bitset",
        events=2048,
    ),
    Claim(
        "hem, d = 300, ψE = 20",
        "hem-d-300-psi-e-20",
        TUPLE,
        ("naive", "hem", "opindex", "be-tree", "ocm", "block-bitmap"),
        50,
    ),
    Claim("clcb-default", "clcb-default", GRID, ("naive", "clcb"), 400),
    Claim("clcb, Zipf places", "clcb-zipf", GRID, ("naive", "clcb"), 200),
    Claim("fpga-default, 6M", "fpga-6m", TUPLE, ("bit-vector",), 40),
)

# Cost against size: (workload, engine, numbers of filters).
_SIZES = (10_000, 100_000, 1_000_000)
SIZES: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("pcm-default", TUPLE, (*_SIZES, 10_000_000)),
    ("hem-default", BLOCK, (*_SIZES, 5_000_000)),
    # A subscription of this workload is ten filters.
    ("clcb-default", GRID, tuple(n // 10 for n in (*_SIZES, 10_000_000))),
)
CHURN = (("pcm-default", TUPLE), ("hem-default", BLOCK), ("clcb-default", GRID))


def _is_here(engine: str) -> bool:
    return engine == "auto" or any(
        each.name == engine and each.available for each in tamis.engines()
    )


def entries() -> list[dict[str, Any]]:
    """The cells of the suite: claims, then figures, then sizes, the small ones first."""
    all_entries: list[dict[str, Any]] = [
        {
            "workloads": [claim.workload],
            "overrides": claim.overrides,
            "engines": claim.engines,
            "modes": list(claim.modes()),
            "deliver": claim.deliver,
            "output": claim.output,
            "events": claim.events,
        }
        for claim in CLAIMS
    ]
    # End to end, strings against numbers, one thread against two.
    for workload in ("pcm-default", "pcm-strings-100"):
        all_entries.append(
            {
                "workloads": [workload],
                "engines": [TUPLE, "auto"],
                "modes": ["build", "latency", "throughput"],
                "threads": [1],
                "events": 4096,
            }
        )
    for workload, engine, n_events in (
        ("pcm-default", TUPLE, 40_960),
        ("hem-default", BLOCK, 4096),
    ):
        all_entries.append(
            {
                "workloads": [workload],
                "engines": [engine],
                "modes": ["build", "throughput"],
                "threads": [1, 2],
                "events": n_events,
            }
        )
    for workload, engine in CHURN:
        engines = [name for name in (engine, "auto") if _is_here(name)]
        all_entries.append({"workloads": [workload], "engines": engines, "modes": ["churn"]})
    sized = [(n, workload, engine) for workload, engine, ns in SIZES for n in ns]
    for n, workload, engine in sorted(sized):
        all_entries.append(
            {
                "workloads": [workload],
                "overrides": {"n_subscriptions": n},
                "engines": [name for name in (engine, "auto") if _is_here(name)],
                "modes": ["latency"],
                "events": 500,
            }
        )
    return all_entries
