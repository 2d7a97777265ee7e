"""The modes about the live matcher, at tiny sizes: what they give, and never how fast."""

from __future__ import annotations

from typing import Any

import pytest

import tamis
import tamis.bench
from tamis.bench.live import FIGURES, Figure
from tamis.bench.live.churn import CHURN_TOMBSTONES
from tamis.bench.plan import LIVE_MODES, Cell, make
from tamis.bench.results import RUN_FILE
from tamis.bench.tables import quantity


def cell_of(run: tamis.bench.Run, mode: str, workload: str = "") -> dict[str, Any]:
    return next(
        each
        for each in run.cells
        if each["mode"] == mode and each["cell"]["workload"].startswith(workload)
    )


def test_every_live_mode_gives_a_whole_file_and_leaves_nothing_else(live: tamis.bench.Run) -> None:
    assert live.is_ok
    assert {each["mode"] for each in live.cells} == set(LIVE_MODES)
    names = {path.name for path in live.path.iterdir()}
    assert names == {RUN_FILE, *(f"{cell.id}.json" for cell in live.plan.cells)}
    for result in live.cells:
        assert result["engine"]["name"] == "ocm"
        assert result["threads"] == LIVE_MODES[result["mode"]][2]
        assert result["n_subscriptions"] == 300
        for series in result["series"].values():
            assert series["n"] == series["repetitions"][0]["n"] > 0


@pytest.mark.parametrize("mode", LIVE_MODES)
def test_every_figure_is_there_with_its_bar(live: tamis.bench.Run, mode: str) -> None:
    expected = set(FIGURES[mode])
    results = [each for each in live.cells if each["mode"] == mode]
    assert {name for result in results for name in result["figures"]} == expected
    for result in results:
        for name, figure in result["figures"].items():
            bar = FIGURES[mode][name]
            assert (figure["at_most"], figure["at_least"]) == (bar.at_most, bar.at_least)
            assert len(figure["repetitions"]) == 1
            if bar.workload:  # it is for a million subscriptions
                assert figure["holds"] is None
            else:
                has_bar = bar.at_most is not None or bar.at_least is not None
                assert isinstance(figure["holds"], bool) == has_bar


def test_load_counts_every_constraint(live: tamis.bench.Run) -> None:
    details = cell_of(live, "load")["details"]
    assert details["n_constraints"] == 300 * 10
    assert details["peak_bytes"] >= details["resident_bytes"] > 0
    assert details["stats"]["n_subscriptions"] == 300


def test_changes_are_timed_one_by_one(live: tamis.bench.Run) -> None:
    hem, clcb = (cell_of(live, "change", each) for each in ("hem", "clcb"))
    assert set(hem["series"]) == {"subscribe", "unsubscribe", "subscribe in merge"}
    assert set(clcb["series"]) == {*hem["series"], "move", "move_many"}
    lap = hem["series"]["subscribe"]["repetitions"][0]
    assert lap["n"] == 75
    assert lap["min_ns"] <= lap["p50_ns"] <= lap["p99_ns"] <= lap["max_ns"]
    assert hem["series"]["subscribe in merge"]["n"] >= 1


def test_moves_are_made_in_place_where_the_engine_follows_them(live: tamis.bench.Run) -> None:
    result = cell_of(live, "move")
    assert set(result["series"]) == {"core", "move_many", "move", "still", "moved", "moving"}
    assert result["details"]["n_moved"] == 0  # ocm does not
    assert result["series"]["core"]["n"] == 600


def test_durable_has_each_way_of_syncing(live: tamis.bench.Run) -> None:
    result = cell_of(live, "durable")
    assert set(result["series"]) == {"none", "grouped", "grouped many", "each"}
    assert result["details"]["each"]["n_subscriptions"] > 300


def test_open_tells_memory_by_kind(live: tamis.bench.Run) -> None:
    details = cell_of(live, "open")["details"]
    assert len(details["processes"]) == 2
    for memory in details["processes"]:
        assert memory["after"]["Rss"] > 0
        assert {"Pss", "Private_Dirty", "Shared_Clean"} <= set(memory["before"])


def test_call_overhead_is_what_is_left(live: tamis.bench.Run) -> None:
    figures = {name: each["best"] for name, each in cell_of(live, "call")["figures"].items()}
    left = figures["match"] - figures["encode"] - figures["engine"]
    assert figures["overhead"] == pytest.approx(left)


def test_churn_says_what_state_it_measured(live: tamis.bench.Run) -> None:
    details = cell_of(live, "churn")["details"]
    assert details["n_tombstones"] == 300 * CHURN_TOMBSTONES
    assert details["states"]
    for state in details["states"]:
        assert 2 * state["n_delta_filters"] >= details["delta_capacity"]
        assert state["segments"]
        assert state["after"]["n_dead"] >= 0
    assert details["quiet"]["n_delta_filters"] == 0


def test_tables_have_bars_beside_the_figures(
    live: tamis.bench.Run, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tamis.bench.show(live)
    rows = [line for line in text.splitlines() if "resident" in line and "hem-default" in line]
    assert "(≤ 100 B)" in rows[0]
    for mode in LIVE_MODES:
        assert f"\n{mode}: " in f"\n{text}"
    assert main("bench", "show", str(live.path), "--markdown") == 0
    assert capsys.readouterr().out.count("| --- |") >= len(LIVE_MODES)


def test_runs_of_live_modes_can_be_compared(live: tamis.bench.Run) -> None:
    compared = tamis.bench.compare(live, live)
    assert {row.mode for row in compared.rows} == set(LIVE_MODES)
    assert not compared.has_regression


def test_a_bar_counts_for_its_workload_as_it_is() -> None:
    bar = Figure("", "s", at_most=15, workload="hem-default")
    assert bar.holds(15.0)
    assert not bar.holds(15.1)
    assert bar.applies_to(Cell("load", "hem-default"))
    assert bar.applies_to(Cell("load", "hem-default", (("seed", 2),)))
    assert not bar.applies_to(Cell("load", "hem-default", (("n_subscriptions", 10),)))
    assert not bar.applies_to(Cell("load", "pcm-default"))
    assert Figure("", "1/s", at_least=10).holds(10)
    assert not Figure("", "1/s", at_least=10).holds(9)
    assert Figure("", "ratio", at_most=2).applies_to(Cell("churn", "x", (("n_filters", 1),)))
    small = Figure("", "ns", at_most=1000, most=1000)
    assert small.applies_to(Cell("call", "pcm-default", (("n_filters", 100),)))
    assert not small.applies_to(Cell("call", "pcm-default"))


def test_figures_are_shown_with_their_unit() -> None:
    shown = [quantity(*each) for each in ((0.05, "s"), (12.34, "us"), (-40, "ns"), (5e4, "1/s"))]
    assert shown == ["50.0 ms", "12.3 µs", "-40.0 ns", "50.0 k/s"]
    assert [quantity(96.4, "B"), quantity(1.234, "ratio")] == ["96 B", "1.23"]


def test_live_modes_have_a_workload_of_their_own_unless_told() -> None:
    (cell,) = make(modes=["churn"]).cells
    assert (cell.workload, cell.engine, cell.threads) == ("pcm-default", "auto", 1)
    (cell,) = make(modes=["load"], workloads=["fpga-default"], threads=[1]).cells
    assert (cell.workload, cell.threads) == ("fpga-default", 1)
    cells = make(modes=["load", "parse"], overrides={"n_subscriptions": 7}).cells
    assert [dict(cell.overrides)["n_subscriptions"] for cell in cells] == [7, 7]
