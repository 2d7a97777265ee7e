"""Verdicts on runs whose times are made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tamis
from tamis.bench import compare, load
from tamis.bench.comparison import verdict
from tamis.bench.measure import Lap, summarise
from tamis.bench.plan import Cell, Plan
from tamis.bench.results import FORMAT, RUN_FILE, write

CELL = Cell("latency", "pcm-default", (("n_filters", 10),), "naive", (), 1, "subscriptions", "ids")
MACHINE = {"cpu": "a", "cores": 2, "simd": "v2", "memory_bytes": 1, "cuda_unavailable": "none"}


def series(*times_us: float) -> dict[str, Any]:
    return summarise("event", [Lap(10, int(us * 10_000), int(us * 10_000)) for us in times_us])


def make_run(folder: Path, *times_us: float, machine: dict[str, Any] = MACHINE) -> Path:
    """A run with one cell; without times the cell is wrong."""
    folder.mkdir()
    about = {
        "format": FORMAT,
        "name": folder.name,
        "date": "2026-11-15T10:00:00Z",
        "command": "tamis bench run",
        "machine": machine,
        "versions": {"tamis": "0", "python": "3", "compiler": "c"},
        "git": None,
    }
    write(folder / RUN_FILE, {**about, "plan": Plan(cells=(CELL,)).to_json()})
    result = {**about, "id": CELL.id, "mode": CELL.mode, "cell": CELL.to_json(), "status": "wrong"}
    if times_us:
        result |= {"status": "ok", "series": {"core": series(*times_us)}}
    write(folder / f"{CELL.id}.json", result)
    return folder


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((10, 10.1, 10.2), (5, 5.1, 5.2), "improvement"),
        ((10, 10.1, 10.2), (20, 20.1, 20.2), "regression"),
        ((10, 10.1, 10.2), (10, 10.1, 10.2), "noise"),
        ((10, 12, 14), (11, 13, 15), "noise"),  # the intervals overlap
        ((10, 10.1, 10.2), (11, 12.5, 14), "noise"),  # 10 % more, in an interval of 14 %
        ((10, 10.1, 10.2), (10.25, 10.3, 10.4), "noise"),  # within 3 %
        ((10, 10.1), (20, 20.1), "noise"),  # too few repetitions to tell
        ((10, 10.1, 10.2), (10.5, 10.55, 10.6), "regression"),
        ((0, 0, 0), (1, 1, 1), "noise"),  # too short for the clock
    ],
)
def test_verdicts(old: tuple[float, ...], new: tuple[float, ...], expected: str) -> None:
    assert verdict(series(*old), series(*new))[1] == expected


def test_verdicts_turn_round_with_the_sides() -> None:
    slow, fast = series(20, 20.1, 20.2), series(10, 10.1, 10.2)
    assert verdict(slow, fast) == (0.5, "improvement")
    assert verdict(fast, slow) == (2.0, "regression")


def test_compare_says_regression_and_fails_only_if_asked(
    tmp_path: Path, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make_run(tmp_path / "a", 10, 10, 10), make_run(tmp_path / "b", 20, 20, 20)
    assert main("bench", "compare", str(old), str(new)) == 0
    shown = capsys.readouterr()
    assert "regression" in shown.out
    assert "2.000" in shown.out
    assert shown.err == ""
    assert main("bench", "compare", str(old), str(new), "--fail-on-regression") == 1
    assert main("bench", "compare", str(new), str(old), "--fail-on-regression") == 0
    assert main("bench", "compare", "a", "b", "--out", str(tmp_path)) == 0


def test_single_files_are_compared(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "a", 10, 10, 10), make_run(tmp_path / "b", 10, 10, 10)
    found = compare(load(old / f"{CELL.id}.json"), load(new / f"{CELL.id}.json"))
    assert [row.verdict for row in found.rows] == ["noise"]
    assert found.warnings == []


def test_other_machines_are_warned_of(tmp_path: Path) -> None:
    old = make_run(tmp_path / "a", 10, 10, 10)
    new = make_run(tmp_path / "b", 10, 10, 10, machine={**MACHINE, "cpu": "b"})
    assert compare(load(old), load(new)).warnings == ["the machines differ in cpu: a and b"]


def test_wrong_cells_have_no_row(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "a", 10, 10, 10), make_run(tmp_path / "b")
    found = compare(load(old), load(new))
    assert found.rows == []
    assert found.warnings == [f"{CELL.id}: no number in the new run: wrong"]


def test_what_is_no_run_is_an_error(
    tmp_path: Path, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(tamis.ArgumentError, match="must be a benchmark file of format 1"):
        load(tmp_path / "x.json")
    with pytest.raises(tamis.ArgumentError, match="must be the folder of a run"):
        load(tmp_path)
    assert main("bench", "compare", "nowhere", "nowhere") == 2
    assert "nowhere must be a run" in capsys.readouterr().err
