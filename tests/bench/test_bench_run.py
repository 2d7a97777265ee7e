"""Running suites and grids: the files, resuming, interruption."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tamis
import tamis.bench
from tamis import workloads
from tamis.bench.answers import collect
from tamis.bench.check import Referee
from tamis.bench.plan import ENGINE_MODES, MICRO_MODES, Cell, Plan, make
from tamis.bench.progress import Progress
from tamis.bench.results import RUN_FILE, cell_of
from tamis.bench.runner import _Runner
from tamis.bench.subject import Subject

TINY: dict[str, Any] = {
    "workloads": ["fpga-default"],
    "engines": ["naive"],
    "overrides": {"n_subscriptions": 50, "planted": 0.5},
    "events": 12,
    "repeat": 2,
}


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_only_whole_files(folder: Path) -> None:
    for path in folder.iterdir():
        assert path.suffix == ".json"
        assert json.loads(path.read_text())["format"] == 1


def test_smoke_suite_gives_one_whole_file_for_each_cell(smoke: tamis.bench.Run) -> None:
    assert smoke.is_ok
    assert files(smoke.path) == {RUN_FILE, *(f"{cell.id}.json" for cell in smoke.plan.cells)}
    assert {each["mode"] for each in smoke.cells} == {*ENGINE_MODES, *MICRO_MODES}
    assert_only_whole_files(smoke.path)


def test_every_file_says_what_was_measured_where_and_how(smoke: tamis.bench.Run) -> None:
    for result in smoke.cells:
        assert result["status"] == "ok"
        assert result["date"].endswith("Z")
        assert result["command"]
        assert {"cpu", "cores", "caches", "simd", "memory_bytes", "kernel"} <= set(
            result["machine"]
        )
        assert result["machine"]["cuda_unavailable"] == tamis._core.cuda_unavailable()
        assert result["versions"]["tamis"] == tamis.__version__
        assert {"python", "numpy", "pyarrow", "compiler"} <= set(result["versions"])
        assert result["git"] is None or {"commit", "dirty"} == set(result["git"])
        assert result["workload"]["seed"] == 1
        assert result["workload"]["parameters"]
        for series in result["series"].values():
            assert len(series["repetitions"]) == 2
            for lap in series["repetitions"]:
                assert lap["n"] == series["n"] > 0
                assert lap["wall_ns"] > 0
                assert lap["cpu_ns"] >= 0
            for summary in series["summary"].values():
                assert summary["min"] <= summary["median"] <= summary["max"]


def test_cells_with_an_engine_say_what_it_answered_and_holds(smoke: tamis.bench.Run) -> None:
    with_engine = [each for each in smoke.cells if each["cell"]["engine"]]
    assert {each["cell"]["workload"].split("-")[0] for each in with_engine} == {
        "pcm",
        "hem",
        "clcb",
        "fpga",
    }
    for result in with_engine:
        assert result["engine"]["name"] == result["cell"]["engine"]
        assert result["threads"] == 1
        assert result["n_subscriptions"] > 0
        assert result["n_events"] == 30
        assert result["matches"]["total"] > 0
        assert len(result["digest"]["value"]) == 32
        assert sum(result["counters"].values()) > 0
        assert {"store", "table", "index", "per_constraint"} <= set(result["bytes"])
        assert result["deployment"]["n"] == result["n_subscriptions"]
        assert "difference" not in result["check"]


def test_modes_have_their_series(smoke: tamis.bench.Run) -> None:
    series = {each["mode"]: set(each["series"]) for each in smoke.cells}
    assert series == {
        "build": {"deployment"},
        "latency": {"core", "dict", "call"},
        "throughput": {"encoded", "arrow", "json"},
        "encode": {"dict", "arrow-flat", "arrow-map", "json-lines"},
        "parse": {"parse_many", "subscribe_many"},
    }
    latency = next(each for each in smoke.cells if each["mode"] == "latency")
    lap = latency["series"]["core"]["repetitions"][0]
    assert lap["min_ns"] <= lap["p50_ns"] <= lap["p99_ns"] <= lap["max_ns"]


def test_naive_is_checked_by_the_oracle(smoke: tamis.bench.Run) -> None:
    checks = [each["check"] for each in smoke.cells if each["cell"]["engine"] == "naive"]
    for check in checks:
        assert check["by"] == "oracle"
        assert check["events"] == 20
        assert check["subscriptions"] > 0
        assert check["pairs"] >= check["events"] * check["subscriptions"]


def test_the_answers_of_all_modes_have_one_digest(smoke: tamis.bench.Run) -> None:
    by_workload: dict[str, set[str]] = {}
    for result in smoke.cells:
        if result["cell"]["engine"]:
            by_workload.setdefault(result["cell"]["workload"], set()).add(result["digest"]["value"])
    assert all(len(digests) == 1 for digests in by_workload.values())
    assert len(by_workload) == len({min(each) for each in by_workload.values()})


def test_lists_of_overrides_and_threads_make_cells_of_their_own(tmp_path: Path) -> None:
    run = tamis.bench.run(
        **{**TINY, "overrides": {"n_subscriptions": [20, 40], "planted": 1.0}},
        modes=["throughput"],
        threads=[1, 2],
        output="bitset",
        batch=5,
        out=tmp_path,
    )
    assert run.is_ok
    assert {(each["n_subscriptions"], each["threads"]) for each in run.cells} == {
        (20, 1),
        (20, 2),
        (40, 1),
        (40, 2),
    }
    assert all(each["batch"] == 5 for each in run.cells)
    assert all(each["check"]["outputs"] == ["bitset", "ids"] for each in run.cells)


@pytest.mark.parametrize("output", ["ids", "count"])
def test_sequential_runs_and_outputs(tmp_path: Path, output: str) -> None:
    run = tamis.bench.run(
        **{**TINY, "engines": ["naive", "auto"]},
        output=output,
        sequential=True,
        deliver="subscribers",
        out=tmp_path,
    )
    assert run.is_ok
    assert [cell_of(each).engine for each in run.cells] == ["naive", "naive", "auto", "auto"]
    assert len({each["digest"]["value"] for each in run.cells}) == 1
    assert [each["check"]["by"] for each in run.cells] == ["oracle", "oracle", "naive", "naive"]


def test_time_limit_cuts_repetitions_but_not_the_first(tmp_path: Path) -> None:
    run = tamis.bench.run(
        **{**TINY, "repeat": 50}, modes=["latency", "throughput"], max_seconds=1e-6, out=tmp_path
    )
    assert run.is_ok
    for result in run.cells:
        series = result["series"]["core" if result["mode"] == "latency" else "encoded"]
        assert result["was_cut"]
        assert len(series["repetitions"]) == 1
        assert 1 <= result["n_measured"] == series["n"] < result["n_events"]


def test_resume_skips_finished_cells(tmp_path: Path) -> None:
    run = tamis.bench.run(**TINY, out=tmp_path, name="run")
    kept, removed = (run.path / f"{cell.id}.json" for cell in run.plan.cells)
    before = kept.read_bytes()
    removed.unlink()
    (run.path / f".{removed.name}.1.tmp").write_text("{")  # of a killed process
    seen: list[Progress] = []
    again = tamis.bench.resume(run.path, on_progress=seen.append)
    assert again.is_ok
    assert kept.read_bytes() == before
    assert {each.cell.id for each in seen} == {removed.stem}
    assert_only_whole_files(run.path)


def test_the_same_name_resumes_and_another_plan_is_an_error(tmp_path: Path) -> None:
    first = tamis.bench.run(**TINY, out=tmp_path, name="run")
    seen: list[Progress] = []
    second = tamis.bench.run(**TINY, out=tmp_path, name="run", on_progress=seen.append)
    assert seen == []
    assert second.cells == first.cells
    with pytest.raises(tamis.ArgumentError, match="name must be new or that of a run"):
        tamis.bench.run(**{**TINY, "events": 3}, out=tmp_path, name="run")


@pytest.mark.parametrize("phase", ["checking", "repetition 2 of 2", "written"])
def test_interruption_leaves_whole_files_and_resumes(tmp_path: Path, phase: str) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == phase:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tamis.bench.run(**TINY, out=tmp_path, name="run", on_progress=interrupt)
    assert_only_whole_files(tmp_path / "run")
    assert not tamis.bench.load(tmp_path / "run").is_complete
    assert tamis.bench.resume(tmp_path / "run").is_ok


def test_sigint_exits_with_130_and_says_how_to_resume(tmp_path: Path, main: Any) -> None:
    script = (
        "import argparse, sys\n"
        "from tamis.bench.cli import add_commands\n"
        "parser = argparse.ArgumentParser()\n"
        "add_commands(parser.add_subparsers())\n"
        "args = parser.parse_args()\n"
        "sys.exit(args.run(args))\n"
    )
    command = (
        "bench run --workload hem-default --engine naive --set n_subscriptions=20,4000 --name run "
        f"--mode latency --repeat 3 --max-seconds 3 --out {tmp_path}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *command.split()],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "run").glob("latency*.json"))) < 1:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    finally:
        if process.poll() is None:
            process.kill()
    assert process.returncode == 130, errors
    assert f"--resume {tmp_path / 'run'}" in errors
    assert_only_whole_files(tmp_path / "run")
    run = tamis.bench.load(tmp_path / "run")
    assert (len(run.cells), run.is_complete) == (1, False)
    assert main("bench", "run", "--resume", str(run.path), "--quiet") == 0
    assert tamis.bench.load(run.path).is_ok


def test_different_digests_within_a_run_are_a_wrong_answer(tmp_path: Path) -> None:
    run = tamis.bench.run(**TINY, out=tmp_path, name="run")
    tampered, removed = (run.path / f"{cell.id}.json" for cell in run.plan.cells)
    result = json.loads(tampered.read_text())
    result["digest"]["value"] = "0" * 32
    tampered.write_text(json.dumps(result))
    removed.unlink()
    again = tamis.bench.resume(run.path)
    assert not again.is_ok
    assert [each["status"] for each in again.cells] == ["wrong", "wrong"]
    assert all("digest" in each["reason"] for each in again.cells)
    assert all("series" not in each for each in again.cells)
    assert tamis.bench.resume(run.path).is_ok  # wrong cells are tried again


def disagreement(tmp_path: Path, wrong: str) -> tuple[Subject, Subject]:
    """(first, second): two exact engines of a stage, of which one answers wrongly."""
    workload = workloads.get("fpga-default", n_subscriptions=50, planted=0.5)
    cells = Plan(cells=(Cell("latency", "fpga-default", engine="naive"), Cell("latency", "x")))
    runner = _Runner(tmp_path, cells, [], lambda progress: None)
    events = workload.events(12).read_all()
    referee = Referee(workload, events, "subscriptions")
    subjects = []
    for name in ("first", "second"):
        subject = Subject(workload, "auto")
        subject.build()
        if name == wrong:
            subject.matcher.subscribe(4711, "TRUE")
        subject.answers = collect(subject.matcher, events, None, "subscriptions", 10)
        runner._compare_digests(("key",), subject, [cells.cells[0]], referee)
        subjects.append(subject)
    return subjects[0], subjects[1]


def test_naive_decides_which_of_two_engines_is_wrong(tmp_path: Path) -> None:
    first, second = disagreement(tmp_path, wrong="second")
    assert first.wrong == ""
    assert second.wrong == "wrong answer: event 0 (batch): extra 4711"
    first, second = disagreement(tmp_path, wrong="first")
    assert "wrong answer to event 0" in first.wrong
    assert second.wrong == ""
    first, second = disagreement(tmp_path, wrong="neither")
    assert first.wrong == second.wrong == ""


def test_a_suite_can_have_another_seed() -> None:
    plan = make(suite="smoke", seed=5)
    assert len(plan.cells) == len(make(suite="smoke").cells)
    assert all(dict(cell.overrides)["seed"] == 5 for cell in plan.cells)


def test_an_engine_that_fails_is_an_error_of_its_cells_alone(tmp_path: Path) -> None:
    plan = tamis.bench.run(**TINY, out=tmp_path, name="run")
    about = json.loads((plan.path / RUN_FILE).read_text())
    cell = dataclasses.replace(plan.plan.cells[0], engine="unheard-of")
    about["plan"]["cells"][0] = {"id": cell.id, **cell.to_json()}
    (plan.path / RUN_FILE).write_text(json.dumps(about))
    again = tamis.bench.resume(plan.path)
    failed = [each for each in again.cells if each["status"] == "error"]
    assert [each["cell"]["engine"] for each in failed] == ["unheard-of"]
    assert "unheard-of" in failed[0]["reason"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"engines": ["nave"]}, "engine must be auto or one of "),
        ({"modes": ["speed"]}, "mode must be one of build, latency"),
        ({"repeat": 0}, "repeat must be a positive integer, not 0"),
        ({"events": 0}, "events must be a positive integer, not 0"),
        ({"threads": [0]}, "threads must be a positive integer, not 0"),
        ({"max_seconds": 0}, "max_seconds must be a number above 0, not 0"),
        ({"deliver": "all"}, "deliver must be one of subscriptions, subscribers, not 'all'"),
        ({"parameters": {"g": 3}}, "a parameter must belong to one of the engines"),
        ({"overrides": {"n_filters": 3}}, "has no parameter n_filters"),
        ({"overrides": {"pcm-default:n_filters": 3}}, "must name one of the workloads"),
        ({"workloads": []}, "a workload must be given for the mode latency"),
        ({"baseline": "hem"}, "baseline must be one of the engines measured"),
        ({"suite": "smoke"}, "workloads must not be given with a suite"),
        ({"name": "a/b"}, "name must be the name of a folder, not 'a/b'"),
    ],
)
def test_bad_arguments_are_errors_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tamis.bench.run(**{**TINY, "out": tmp_path / "out", **changes})
    assert not (tmp_path / "out").exists()


def test_importing_the_benchmark_loads_no_plots() -> None:
    # The workloads make Arrow arrays when imported, for which pyarrow loads pandas if there is one.
    code = (
        "import sys, tamis.workloads\n"
        "before = set(sys.modules)\n"
        "import tamis.bench, tamis.bench.cli\n"
        "assert not {'matplotlib', 'pandas', 'hypothesis'} & (set(sys.modules) - before)\n"
        "assert not {'matplotlib', 'hypothesis'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
