"""The bars of the suite, and what a run says about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tamis.bench.gpu.matching import ON_DEVICE, ON_HOST
from tamis.bench.gpu.parts import Figure
from tamis.bench.results import Run
from tamis.bench.verdicts import Number

TUPLE, BLOCK, GRID = "tuple-key-cuda", "block-bitmap-cuda", "spatial-grid-cuda"
LEAST_OF_BUS = 0.85
WITHIN = 1.2  # of auto, of the better of the two
EVENT_BYTES = 20  # of a packed event, at most


def figures(run: Run, *, share: float = 1.0) -> list[Figure]:
    """All figures of the run's cells at this share of the workloads' sizes."""
    return [
        line
        for each in run.cells
        if each["status"] == "ok" and float(each["cell"]["overrides"].get("share", 1)) == share
        for line in each.get("lines", [])
    ]


def share_of(run: Run) -> float:
    """1, or what the run was tried with."""
    shares = [float(each["cell"]["overrides"].get("share", 1)) for each in run.cells]
    return max(shares, default=1.0)


def rate(figure: Figure) -> float:
    """Events a second."""
    return float(figure["n_events"]) / float(figure["seconds"])


def of_bound(figure: Figure) -> float:
    """The share of its bound, which was measured in the same run."""
    return float(figure["bound_seconds"]) / float(figure["seconds"])


def find(lines: Sequence[Figure], **facts: object) -> list[Figure]:
    return [line for line in lines if all(line.get(name) == is_ for name, is_ in facts.items())]


@dataclass(frozen=True)
class Crossing:
    """A batch size and a number of filters: seconds of each engine, from Arrow to ids."""

    n_filters: int
    n_events: int
    host: float
    device: float
    auto: float

    @property
    def auto_ratio(self) -> float:
        return self.auto / min(self.host, self.device)


def crossings(lines: Sequence[Figure]) -> list[Crossing]:
    """Where all three were measured."""
    seconds = {
        (line["n_filters"], line["n_events"], line["engine"]): float(line["seconds"])
        for line in find(lines, figure="crossover")
    }
    places = sorted({(n_filters, n_events) for n_filters, n_events, _ in seconds})
    return [
        Crossing(*place, *(seconds[(*place, name)] for name in (ON_HOST, ON_DEVICE, "auto")))
        for place in places
        if all((*place, name) in seconds for name in (ON_HOST, ON_DEVICE, "auto"))
    ]


def numbers(lines: Sequence[Figure]) -> list[Number]:
    """Every bar; those that were not measured have no value."""

    def largest(engine: str, workload: str, n_filters: int | None = None) -> Figure | None:
        found = find(lines, figure="packed", engine=engine, workload=workload)
        found = [each for each in found if n_filters in (None, each["n_filters"])]
        return max(found, key=lambda each: int(each["n_events"]), default=None)

    def at(figure: Figure | None, value: Callable[[Figure], float]) -> float | None:
        return None if figure is None else value(figure)

    def of_events(n_events: int, n_filters: int) -> Figure | None:
        found = find(
            lines,
            figure="packed",
            engine=TUPLE,
            workload="pcm-default",
            n_events=n_events,
            n_filters=n_filters,
        )
        return found[0] if found else None

    few, many = of_events(1_000_000, 250_000), of_events(1_000_000, 10_000_000)
    moves = find(lines, figure="move", workload="clcb-default")
    ends = {
        name: max(
            find(lines, figure="end-to-end", engine=name),
            key=lambda each: int(each["n_events"]),
            default=None,
        )
        for name in (ON_HOST, ON_DEVICE)
    }
    host, device = ends[ON_HOST], ends[ON_DEVICE]
    crossed = crossings(lines)
    pcm = largest(TUPLE, "pcm-default", 250_000)
    return [
        Number(
            "bytes of a packed event, pcm-default",
            TUPLE,
            at(pcm, lambda each: each["bytes"] / each["n_events"]),
            "B",
            at_most=EVENT_BYTES,
        ),
        Number(
            "share of the bus, pcm-default, most events",
            TUPLE,
            at(pcm, of_bound),
            "ratio",
            at_least=LEAST_OF_BUS,
        ),
        Number(
            "events/s, pcm-default, 100,000 events",
            TUPLE,
            at(of_events(100_000, 250_000), rate),
            "1/s",
            at_least=1.5e9,
        ),
        Number(
            "10M filters against 250,000, 1M events",
            TUPLE,
            rate(many) / rate(few) if few and many else None,
            "ratio",
            at_least=0.9,
        ),
        Number(
            "events/s, hem-default, pairs out",
            BLOCK,
            at(largest(BLOCK, "hem-default"), rate),
            "1/s",
            at_least=38e6,
        ),
        Number(
            "events/s, clcb-default",
            GRID,
            at(largest(GRID, "clcb-default"), rate),
            "1/s",
            at_least=0.8e9,
        ),
        Number(
            "all 2.5M areas moved and indexed again",
            GRID,
            at(moves[0] if moves else None, lambda each: float(each["seconds"])),
            "s",
            at_most=0.65e-3,
        ),
        Number(
            "events/s end to end from Arrow, pcm-default",
            ON_DEVICE,
            at(device, rate),
            "1/s",
            at_least=100e6,
        ),
        Number(
            f"end to end, against {ON_HOST} on all cores",
            ON_DEVICE,
            rate(device) / rate(host) if host and device else None,
            "ratio",
            at_least=2.0,
        ),
        Number(
            "auto against the better of CPU and GPU, worst",
            "auto",
            max((each.auto_ratio for each in crossed), default=None),
            "ratio",
            at_most=WITHIN,
        ),
    ]
