"""What a run says about the claims, and about the other figures that have a bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tamis.bench.claims import BLOCK, CLAIMS, TUPLE, Claim
from tamis.bench.results import Result, Run, cell_of
from tamis.bench.tables import MAIN_SERIES, cpu_us, is_ok, markdown_table, quantity


@dataclass(frozen=True)
class Verdict:
    """A claim, or a figure, as a run has it; times in CPU µs an event."""

    what: str
    mode: str
    ours: str
    ours_us: float | None
    auto_us: float | None
    rival: str
    rival_us: float | None
    bar: float

    @property
    def ratio(self) -> float | None:
        if self.ours_us is None or self.rival_us is None:
            return None
        return self.rival_us / self.ours_us

    @property
    def holds(self) -> bool | None:
        return None if self.ratio is None else self.ratio >= self.bar


def verdicts(run: Run) -> list[Verdict]:
    """Every claim that the run has cells of."""
    found = []
    for claim in CLAIMS:
        for mode, bar in claim.modes().items():
            cells = {
                cell_of(each).engine: each
                for each in run.cells
                if _belongs(claim, mode, each) and is_ok(each)
            }
            times = {name: cpu_us(each, MAIN_SERIES[mode]) for name, each in cells.items()}
            rivals = {name: times[name] for name in claim.rivals if name in times}
            rival = min(rivals, key=lambda name: rivals[name]) if rivals else ""
            found.append(
                Verdict(
                    claim.what,
                    mode,
                    claim.ours,
                    times.get(claim.ours),
                    times.get("auto"),
                    rival or " or ".join(claim.rivals),
                    rivals.get(rival),
                    bar,
                )
            )
    return found


def _belongs(claim: Claim, mode: str, result: Result) -> bool:
    cell = cell_of(result)
    return (cell.workload, cell.mode, cell.deliver, cell.output, dict(cell.overrides)) == (
        claim.workload,
        mode,
        claim.deliver,
        claim.output,
        claim.overrides,
    ) and cell.threads == 1


@dataclass(frozen=True)
class Number:
    """One number with its bar."""

    what: str
    engine: str
    value: float | None
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def holds(self) -> bool | None:
        if self.value is None:
            return None
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


HOLDS = {True: "holds", False: "MISSED", None: "not measured"}


def numbers_table(found: Sequence[Number]) -> str:
    """What was measured beside its bar, as Markdown."""
    rows = [
        [
            each.what,
            each.engine,
            "" if each.value is None else quantity(each.value, each.unit),
            f"≤ {quantity(each.at_most, each.unit)}"
            if each.at_most is not None
            else f"≥ {quantity(each.at_least or 0.0, each.unit)}",
            HOLDS[each.holds],
        ]
        for each in found
    ]
    return markdown_table(["what", "engine", "measured", "bar", ""], rows)


def numbers(run: Run) -> list[Number]:
    """Memory, threads, strings and rates end to end."""

    def find(
        workload: str, engine: str, mode: str, threads: int = 1, deliver: str = "subscriptions"
    ) -> Result | None:
        for each in run.cells:
            cell = cell_of(each)
            if is_ok(each) and (
                cell.workload,
                cell.engine,
                cell.mode,
                cell.threads,
                cell.deliver,
                cell.overrides,
            ) == (workload, engine, mode, threads, deliver, ()):
                return each
        return None

    def per_second(result: Result | None, series: str) -> float | None:
        if result is None or series not in result["series"]:
            return None
        return 1e9 / float(result["series"][series]["summary"]["cpu_ns_per_unit"]["min"])

    def memory(workload: str, engine: str) -> float | None:
        built = find(workload, engine, "build")
        return built["bytes"]["index"] / built["bytes"]["n_constraints"] if built else None

    def speed_up(workload: str, engine: str) -> float | None:
        one, two = (find(workload, engine, "throughput", threads) for threads in (1, 2))
        if one is None or two is None:
            return None
        walls = [
            each["series"]["encoded"]["summary"]["wall_ns_per_unit"]["min"] for each in (one, two)
        ]
        return float(walls[0] / walls[1])

    strings, plain = (
        find(workload, TUPLE, "latency") for workload in ("pcm-strings-100", "pcm-default")
    )
    ratio = cpu_us(strings, "core") / cpu_us(plain, "core") if strings and plain else None
    found = [
        Number("bytes a constraint, pcm-default", TUPLE, memory("pcm-default", TUPLE), "B", 24),
        Number("bytes a constraint, hem-default", BLOCK, memory("hem-default", BLOCK), "B", 40),
        Number(
            "two threads against one, pcm-default",
            TUPLE,
            speed_up("pcm-default", TUPLE),
            "ratio",
            at_least=1.8,
        ),
        Number(
            "two threads against one, hem-default",
            BLOCK,
            speed_up("hem-default", BLOCK),
            "ratio",
            at_least=1.8,
        ),
        Number("strings against numbers, pcm", TUPLE, ratio, "ratio", at_most=1.5),
    ]
    for engine in (TUPLE, "auto"):
        single = find("pcm-default", engine, "latency")
        batch = find("pcm-default", engine, "throughput")
        found += [
            Number(
                "events/s from an Arrow map column",
                engine,
                per_second(batch, "arrow"),
                "1/s",
                at_least=2e6,
            ),
            Number(
                "events/s of m.match(dict)", engine, per_second(single, "dict"), "1/s", at_least=5e5
            ),
            Number(
                "events/s from JSON lines", engine, per_second(batch, "json"), "1/s", at_least=4e5
            ),
        ]
    return found
