"""Pages of the documentation made of runs."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tamis.bench
from tamis.bench import report
from tamis.bench.results import RUN_FILE


def test_a_page_has_tables_a_plot_and_how_it_was_made(
    smoke: tamis.bench.Run, tmp_path: Path, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "smoke.md"
    assert main("bench", "report", str(smoke.path), str(page), "--title", "Smoke test") == 0
    assert f"wrote {page}" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("# Smoke test\n")
    for each in (smoke.about["command"], smoke.about["date"], smoke.about["machine"]["cpu"]):
        assert each in text
    for key in ("pcm", "hem", "clcb", "fpga"):
        assert f"\n## {key}-default" in text
    for word in ("× naive", "CPU µs/event", "deployment", "index", "work per event", "filters"):
        assert word in text
    for mode in ("build", "throughput", "encode", "parse"):
        assert f"### {mode}:" in text
    pictures = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert sorted(pictures) == sorted(path.name for path in tmp_path.glob("*.png"))
    assert "smoke-latency.png" in pictures


def test_a_live_run_has_a_page_without_plots(live: tamis.bench.Run, tmp_path: Path) -> None:
    written = report.write(live, tmp_path / "live.md")
    assert written == [tmp_path / "live.md"]
    text = written[0].read_text()
    assert text.startswith("# Live\n")
    assert "### churn:" in text
    assert "(≤ 100 B)" in text


def test_approximate_cut_and_failed_engines_are_told(
    smoke: tamis.bench.Run, tmp_path: Path
) -> None:
    run = changed(smoke, tmp_path / "run")
    text = report.write(run, tmp_path / "run.md")[0].read_text()
    section = text.split("\n## hem-default")[1].split("\n## ")[0]
    assert "naive ≈ missed none of the" in section
    assert "1.250% of its answers are false" in section
    assert "| ocm | CAPPED |" in section
    assert "ocm: not finished after 60 s: building" in section
    section = text.split("\n## fpga-default")[1].split("\n## ")[0]
    assert "the time limit left 3 of 30 events" in section


def changed(run: tamis.bench.Run, folder: Path) -> tamis.bench.Run:
    """The run with results as slow and approximate engines have them."""
    shutil.copytree(run.path, folder)
    for path in folder.glob("latency-*.json"):
        result = json.loads(path.read_text())
        if path.name.startswith("latency-hem-default-naive"):
            result["check"] |= {"approximate": True, "false_positive_rate": 0.0125}
        elif path.name.startswith("latency-hem"):
            del result["series"]
            result |= {"status": "capped", "reason": "not finished after 60 s: building"}
        elif path.name.startswith("latency-fpga"):
            result["n_measured"] = 3
        path.write_text(json.dumps(result))
    return tamis.bench.load(folder)


def test_many_workloads_are_rows_of_one_table(smoke: tamis.bench.Run, tmp_path: Path) -> None:
    results = []
    for result in smoke.cells:
        if result["mode"] == "latency":
            for seed in range(3):
                cell = {**result["cell"], "overrides": {"seed": seed}}
                results.append({**result, "cell": cell})
    results[0] = {**results[0], "status": "capped", "reason": "not finished"}
    results[1] = {**results[1], "status": "wrong", "reason": "wrong answer: event 3"}
    many = dataclasses.replace(smoke, cells=results)
    text = report.write(many, tmp_path / "grid.md")[0].read_text()
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert table[0].startswith("| workload | naive | ")
    assert len(table) == 2 + 4 * 3
    assert "CAPPED" in table[2]
    assert "×)" in table[-1]
    assert "wrong answer: event 3" in text
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")


def test_cells_of_another_commit_are_named(smoke: tamis.bench.Run, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first, *rest = smoke.cells
    first = {**first, "git": {"commit": "0123456789abcdef", "dirty": False}}
    report.write(dataclasses.replace(smoke, cells=[first, *rest]), page)
    (line,) = [each for each in page.read_text().splitlines() if "commit 0123456789ab" in each]
    assert line.startswith(first["id"].rsplit("-", 1)[0])


def test_committed_pages_name_machine_date_and_command() -> None:
    folder = Path(__file__).parents[2] / "docs" / "benchmarks"
    pages = sorted(folder.glob("*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        if page.stem == "spark":  # measured by tamis.spark itself: bench does not import it
            assert "python -m tamis.spark.measure" in text
            assert "November 2026, 2 cores" in text
        else:
            assert "`tamis bench run" in text, page
            assert "tamis 0." in text, page
        for line in text.splitlines():
            if line.startswith("!["):
                assert (folder / line.split("(")[1].rstrip(")")).is_file(), line
    assert not (folder / RUN_FILE).exists()
