"""The suites that have bars: what they measure, and what their reports say of numbers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import tamis.bench
from tamis.bench import judgement, plan, planner_grid, report
from tamis.bench.claims import CLAIMS
from tamis.bench.results import Run
from tamis.bench.verdicts import numbers, verdicts


def with_cells(run: Run, cells: list[dict[str, Any]], suite: str) -> Run:
    about = copy.deepcopy(run.about)
    about["plan"]["suite"] = suite
    return Run(run.path, about, cells)


def cell_like(run: Run, mode: str, cpu_ns: float, **facts: Any) -> dict[str, Any]:
    """A cell of the run with another workload or engine, and another time."""
    found = next(each for each in run.cells if each["mode"] == mode)
    made = copy.deepcopy(found)
    made["cell"] |= {"overrides": {}, "deliver": "subscriptions", **facts}
    for series in made["series"].values():
        series["summary"]["cpu_ns_per_unit"] = dict.fromkeys(("min", "median", "max"), cpu_ns)
    return made


def test_the_grid_of_the_planner_mixes_sizes_and_kinds() -> None:
    cells = plan.make(suite="planner").cells
    workloads = {cell.workload_label for cell in cells}
    assert len(workloads) >= 60
    sizes = {cell.make_workload().n_subscriptions for cell in cells}
    assert min(sizes) == 10
    assert max(sizes) == 2_500_000
    for label in workloads:
        engines = {cell.engine for cell in cells if cell.workload_label == label}
        assert engines >= {"auto", "naive", "tuple-key", "block-bitmap"}


def test_every_claim_has_cells_of_ours_and_of_its_rivals() -> None:
    cells = plan.make(suite="ours").cells
    known = {engine.name for engine in tamis.engines()}
    for claim in CLAIMS:
        for mode in claim.modes():
            engines = {
                cell.engine
                for cell in cells
                if (cell.workload, cell.mode, cell.deliver, cell.output)
                == (claim.workload, mode, claim.deliver, claim.output)
                and not cell.overrides
            }
            assert engines >= ({claim.ours, "auto", *claim.rivals} & {*known, "auto"}), claim.what


def test_a_claim_is_held_against_the_best_rival(smoke: Run) -> None:
    cells = [
        cell_like(
            smoke, "latency", ns, workload="pcm-names-10", engine=engine, deliver="subscribers"
        )
        for engine, ns in (("tuple-key", 100.0), ("sff", 5000.0), ("ocm", 900.0), ("auto", 130.0))
    ]
    found = {each.what: each for each in verdicts(with_cells(smoke, cells, "ours"))}
    names_10 = found["pcm, 10 names"]
    assert (names_10.rival, names_10.ratio, names_10.holds) == ("ocm", 9.0, False)
    assert names_10.auto_us == pytest.approx(0.13)
    assert found["hem-default"].holds is None
    text = judgement.ours(with_cells(smoke, cells, "ours"), Path("sizes.png"))
    assert "0 of 1 bars hold" in text
    assert "| pcm, 10 names | single | tuple-key | 100 ns | 130 ns | ocm | 900 ns | 9× |" in text
    assert "MISSED" in text


def test_strings_are_compared_with_numbers(smoke: Run) -> None:
    cells = [
        cell_like(smoke, "latency", ns, workload=workload, engine="tuple-key")
        for workload, ns in (("pcm-default", 300.0), ("pcm-strings-100", 420.0))
    ]
    found = {(each.what, each.engine): each for each in numbers(with_cells(smoke, cells, "ours"))}
    ratio = found["strings against numbers, pcm", "tuple-key"]
    assert ratio.value == pytest.approx(1.4)
    assert ratio.holds
    rate = found["events/s of m.match(dict)", "tuple-key"]
    assert rate.value == pytest.approx(1e9 / 300)
    assert found["events/s from JSON lines", "tuple-key"].holds is None


def test_the_planner_is_held_against_the_best_engine(smoke: Run, tmp_path: Path) -> None:
    chosen = {"segments": [{"groups": [{"engine": "tuple-key", "n_filters": 5}]}]}
    cells = []
    for workload, auto_ns in (("pcm-default", 110.0), ("hem-default", 150.0), ("fpga-1m", 250.0)):
        for engine, ns in (("auto", auto_ns), ("naive", 100.0), ("ocm", 400.0)):
            made = cell_like(smoke, "latency", ns, workload=workload, engine=engine)
            cells.append({**made, "plan": chosen})
    run = with_cells(smoke, cells, "planner")
    text = judgement.planner(run, tmp_path / "none.png")
    assert "on 1 of 3 (33%), bar 95%" in text
    assert "within 2× on 2 of 3 (67%)" in text
    assert "| fpga-1m | tuple-key | 250 ns | naive | 100 ns | 2.50 | ABOVE 2 | ocm 400 ns |" in text
    assert planner_grid.GOOD == 1.3
    report.write(run, tmp_path / "planner.md")
    assert "## auto against the best engine" in (tmp_path / "planner.md").read_text()


def test_auto_is_measured_with_its_plan(tmp_path: Path) -> None:
    run = tamis.bench.run(
        workloads=["pcm-default"],
        overrides={"n_filters": 200},
        engines=["auto"],
        modes=["latency", "throughput"],
        events=40,
        repeat=1,
        out=tmp_path,
    )
    assert run.is_ok
    for result in run.cells:
        (segment,) = result["plan"]["segments"]
        assert not segment["is_guess"]
        assert segment["groups"][0]["estimates"]
    batches = next(each for each in run.cells if each["mode"] == "throughput")
    assert set(batches["series"]) == {"encoded", "arrow", "json"}
