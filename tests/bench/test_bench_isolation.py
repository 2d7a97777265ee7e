"""Engines in processes of their own: the same answers, a time limit, and what comes after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tamis
import tamis.bench
from tamis import workloads
from tamis.bench import isolation
from tamis.bench.check import Referee, check
from tamis.bench.plan import make
from tamis.bench.progress import Progress
from tamis.bench.subject import Subject

TINY: dict[str, Any] = {
    "workloads": ["fpga-default"],
    "overrides": {"n_subscriptions": 60, "planted": 0.5},
    "engines": ["naive", "ocm"],
    "modes": ["latency"],
    "events": 12,
    "repeat": 2,
}


def test_own_processes_measure_and_check_as_one_process_does(tmp_path: Path) -> None:
    apart = tamis.bench.run(**TINY, cell_seconds=60, out=tmp_path, name="apart")
    together = tamis.bench.run(**TINY, out=tmp_path, name="together")
    assert apart.is_ok
    assert [each["id"] for each in apart.cells] == [each["id"] for each in together.cells]
    for one, other in zip(apart.cells, together.cells, strict=True):
        assert one["status"] == "ok"
        for name in ("digest", "matches", "check", "command", "counters", "engine"):
            assert one[name] == other[name], name
        assert set(one["series"]) == set(other["series"])
        assert 0 < one["process_bytes"]["own"] < one["process_bytes"]["peak"]
    assert {path.suffix for path in apart.path.iterdir()} == {".json"}


def test_without_naive_its_answers_are_made_for_the_check(tmp_path: Path) -> None:
    run = tamis.bench.run(
        **{**TINY, "engines": ["ocm"]}, deliver="subscribers", cell_seconds=60, out=tmp_path
    )
    assert run.is_ok
    assert run.cells[0]["check"]["by"] == "naive"
    assert run.cells[0]["check"]["matches"] > 0


def test_over_its_time_a_cell_is_capped_and_not_tried_again(tmp_path: Path) -> None:
    run = tamis.bench.run(**TINY, cell_seconds=0.001, out=tmp_path, name="run")
    assert [each["status"] for each in run.cells] == ["capped", "capped"]
    assert all("not finished after 0.001 s" in each["reason"] for each in run.cells)
    assert all("series" not in each for each in run.cells)
    assert run.is_ok  # nothing is wrong
    seen: list[Progress] = []
    assert tamis.bench.resume(run.path, on_progress=seen.append).cells == run.cells
    assert seen == []
    text = tamis.bench.show(run)
    assert text.count("CAPPED") == 2


def test_a_resumed_run_does_only_what_is_left(tmp_path: Path) -> None:
    run = tamis.bench.run(**TINY, cell_seconds=60, out=tmp_path, name="run")
    kept, removed = (run.path / f"{cell.id}.json" for cell in run.plan.cells)
    before = kept.read_bytes()
    removed.unlink()
    (run.path / ".work" / "left").mkdir(parents=True)  # by a process that was killed
    seen: list[Progress] = []
    assert tamis.bench.resume(run.path, on_progress=seen.append).is_ok
    assert not (run.path / ".work").exists()
    assert kept.read_bytes() == before
    assert {each.cell.id for each in seen} == {removed.stem}


def test_interruption_ends_the_process_and_leaves_whole_files(tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.phase == "checking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tamis.bench.run(**TINY, cell_seconds=60, out=tmp_path, name="run", on_progress=interrupt)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
    assert tamis.bench.resume(tmp_path / "run").is_ok


def test_what_fails_in_its_process_is_an_error_of_its_cells_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = isolation.call

    def call(task: str, spec: dict[str, Any], **options: Any) -> dict[str, Any]:
        if task == "stage" and spec["cells"][0]["engine"] == "naive":
            spec = {**spec, "cells": [{**spec["cells"][0], "engine": "unheard-of"}]}
        return real(task, spec, **options)

    monkeypatch.setattr(isolation, "call", call)
    run = tamis.bench.run(**TINY, cell_seconds=60, out=tmp_path, name="run")
    assert [each["status"] for each in run.cells] == ["error", "ok"]
    assert not run.is_ok


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(isolation.ChildError, match="KeyError: 'no such task'"):
        isolation.call("no such task", {})


def test_a_child_that_dies_is_an_error() -> None:
    with isolation.Child("open", {}) as child:
        os.kill(child._process.pid, 9)
        with pytest.raises(isolation.ChildError, match=r"SIGKILL|KeyError"):
            child.receive(30)
    assert child._process.returncode is not None


def test_leaving_the_block_ends_the_child() -> None:
    with isolation.Child("open", {"cell": {}}) as child:
        pid = child._process.pid
    assert child._process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_truth_is_kept_for_other_processes(tmp_path: Path) -> None:
    workload = workloads.get("pcm-default", n_filters=60, planted=1.0)
    events = workload.events(15).read_all()
    path = tmp_path / "truth.npz"
    first = Referee(workload, events, "subscriptions", path).truth()
    other = Referee(workload, events, "subscriptions", path)
    for mine, its in zip(first, other.truth(), strict=True):
        assert np.array_equal(mine, its)
        assert mine.dtype == its.dtype
    assert other._subject is None  # nothing was built for it
    none = Referee(workload, events.slice(0, 0), "subscriptions", tmp_path / "none.npz")
    assert none.truth() == []


@pytest.mark.parametrize(
    ("tamper", "is_right"), [("more", True), ("less", False), ("nothing", True)]
)
def test_an_approximate_engine_may_answer_too_much_but_not_too_little(
    monkeypatch: pytest.MonkeyPatch, tamper: str, is_right: bool
) -> None:
    workload = workloads.get("fpga-default", n_subscriptions=60, planted=1.0)
    subject = Subject(workload, "ocm")
    subject.build()
    monkeypatch.setattr(Subject, "is_exact", False)
    referee = Referee(workload, workload.events(15).read_all(), "subscriptions")
    if tamper == "more":
        subject.matcher.subscribe(4711, "TRUE")
    elif tamper == "less":
        subject.matcher.unsubscribe(int(referee.truth()[3][0]))
    check(subject, referee, ["ids"])
    assert (subject.wrong == "") == is_right
    assert subject.check["approximate"]
    assert (subject.check["false_positive_rate"] > 0) == (tamper == "more")
    if not is_right:
        assert "misses" in subject.wrong


def test_the_suites_of_the_papers_have_every_engine_and_naive_first() -> None:
    papers, grid = make(suite="papers"), make(suite="papers-grid")
    available = {engine.name for engine in tamis.engines() if engine.available}
    n_variants = sum(len(workloads.keys(each)) - 1 for each in ("pcm", "hem", "clcb", "fpga"))
    for plan, n_workloads in ((papers, 4), (grid, n_variants)):
        assert plan.baseline == "naive"
        assert {cell.mode for cell in plan.cells} == {"latency"}
        assert {cell.threads for cell in plan.cells} == {1}
        assert {cell.engine for cell in plan.cells} == available
        assert len(plan.cells) == n_workloads * len(available)
        assert len(plan.stages()) == len(plan.cells)
        assert plan.stages()[0].cells[0].engine == "naive"
    assert grid.cell_seconds == 60
    deliver = {cell.workload.split("-")[0]: cell.deliver for cell in grid.cells}
    assert deliver["pcm"] == "subscribers"
    assert deliver["hem"] == "subscriptions"


def test_a_suite_can_have_other_sizes() -> None:
    plan = make(suite="papers", overrides={"n_subscriptions": 30}, cell_seconds=5)
    assert plan.cell_seconds == 5
    assert {dict(cell.overrides).popitem()[1] for cell in plan.cells} == {30}
