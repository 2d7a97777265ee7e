"""The suite gpu: its report from lines made up here, and what it says where there is no GPU.

No number in this file was measured.
"""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import tamis
from tamis import _core
from tamis.bench import plan, report, results
from tamis.bench.gpu import kernels, matching, native, parts
from tamis.bench.gpu.adopt import adopt
from tamis.bench.gpu.verdicts import crossings, numbers
from tamis.bench.runner import run_plan, start

WHERE = {
    "figure": "machine",
    "gpu": "Made-up GPU, driver 1.2",
    "cpu": "Made-up CPU",
    "cores": 3,
    "date": "2026-01-02T03:04:05Z",
    "command": "tamis_gpu_bench 1",
    "commit": "0123456789abcdef",
}


def packed(engine: str, workload: str, n_filters: int, n_events: int, rate: float) -> Any:
    seconds = n_events / rate
    return {
        "figure": "packed",
        "engine": engine,
        "workload": workload,
        "n_filters": n_filters,
        "n_events": n_events,
        "seconds": seconds,
        "way": "direct",
        "on_device_seconds": seconds / 2,
        "bytes": 20 * n_events,
        "bound": "bus",
        "bound_seconds": 0.9 * seconds,
        "n_pairs": n_events,
        "verified": 10,
    }


def done(part: str) -> Any:
    return {"figure": "done", "engine": "", "workload": "", "part": part, "share": 1, "seconds": 1}


def crossing(engine: str, seconds: float) -> Any:
    facts = {"workload": "pcm-default", "n_filters": 1000, "n_events": 16}
    return {"figure": "crossover", "engine": engine, "seconds": seconds, **facts}


TUPLE_KEY = [
    packed("tuple-key-cuda", "pcm-default", 250_000, 100_000, 1.6e9),
    packed("tuple-key-cuda", "pcm-default", 250_000, 1_000_000, 2e9),
    packed("tuple-key-cuda", "pcm-default", 250_000, 10_000_000, 2.5e9),
]
CCM = [
    {
        "figure": "single",
        "engine": "ccm",
        "workload": "pcm-default",
        "n_filters": 250_000,
        "n_events": 1000,
        "parameters": {"events_per_kernel": 1, "filter_selection": 1},
        "seconds": 21e-6,
        "batch_seconds": 5e-6,
        "build_seconds": 1.5,
        "index_bytes": 5_000_000,
    },
    {
        "figure": "steps",
        "engine": "ccm",
        "workload": "pcm-default",
        "n_events": 1000,
        "parameters": {"filter_selection": 1, "stream": 0},
        "steps": dict.fromkeys(["input", "copy input", "kernel", "copy results", "reset"], 2e-6),
    },
]


def write_lines(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_recorded_lines_become_a_run_and_a_report(tmp_path: Path, main: Any) -> None:
    slow = [packed("tuple-key-cuda", "pcm-default", 10_000_000, 1_000_000, 1e9)]
    lines = [WHERE, *TUPLE_KEY, done("tuple-key-cuda"), *CCM, done("ccm")]
    lines += [*slow, done("tuple-key-cuda/10m"), {"figure": "packed", "engine": "cut off"}]
    file = write_lines(tmp_path / "recorded.jsonl", lines)
    out = str(tmp_path / "results")
    assert main("bench", "run", "--figures", str(file), "--out", out, "--name", "gpu") == 0
    page = tmp_path / "gpu.md"
    assert main("bench", "report", "gpu", str(page), "--out", out) == 0
    text = page.read_text()
    assert "Made-up GPU, driver 1.2" in text
    assert "2026-01-02T03:04:05Z" in text
    assert "`tamis_gpu_bench 1`" in text
    assert (
        "| events/s, pcm-default, 100,000 events | tuple-key-cuda | 1.60 G/s | ≥ 1.50 G/s | hold"
        in text
    )
    assert "| share of the bus, pcm-default, most events | tuple-key-cuda | 0.9 | ≥ 0.85 |" in text
    assert (
        "| 10M filters against 250,000, 1M events | tuple-key-cuda | 0.5 | ≥ 0.9 | MISSED |" in text
    )
    assert "| events/s, clcb-default | spatial-grid-cuda |  | ≥ 800 M/s | not measured |" in text
    assert "3 of 4 hold." in text
    assert "| paper, GTX 460 | 3.60 µs |" in text
    assert "| here | 2.00 µs | 2.00 µs | 2.00 µs | 2.00 µs | 2.00 µs | 10.0 µs | 21.0 µs |" in text
    assert "cut off" not in text


def test_lines_without_a_whole_part_are_refused(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "lines.jsonl", [WHERE, *TUPLE_KEY])
    with pytest.raises(tamis.ArgumentError, match="must have the figures of a whole part"):
        adopt(file, tmp_path)
    file.write_text("no JSON\n")
    with pytest.raises(tamis.ArgumentError, match="line 1 must be JSON"):
        adopt(file, tmp_path)
    with pytest.raises(tamis.ArgumentError, match="--figures must be a file that can be read"):
        adopt(tmp_path / "nowhere", tmp_path)


def test_auto_is_held_against_the_better_of_cpu_and_gpu() -> None:
    lines = [
        crossing("tuple-key", 3e-6),
        crossing("tuple-key-cuda", 2e-6),
        crossing("auto", 2.2e-6),
    ]
    (found,) = crossings(lines)
    assert found.auto_ratio == pytest.approx(1.1)
    bars = {each.what: each for each in numbers(lines)}
    assert bars["auto against the better of CPU and GPU, worst"].holds is True
    assert bars["events/s end to end from Arrow, pcm-default"].holds is None


@pytest.mark.skipif(not _core.cuda_unavailable(), reason="there is a GPU")
def test_without_a_gpu_the_suite_says_why_in_one_line(
    main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("bench", "run", "--suite", "gpu") == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert f"the suite gpu needs an NVIDIA GPU: {_core.cuda_unavailable()}" in error


def test_parts_belong_to_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    # A plan is refused where there is no GPU; what it would be is the same everywhere.
    monkeypatch.setattr(_core, "cuda_unavailable", lambda: "")
    cells = plan.make(suite="gpu", parts=["ccm", "bounds"], overrides={"share": 0.5}).cells
    assert [(cell.workload, cell.overrides) for cell in cells] == [
        ("ccm", (("share", 0.5),)),
        ("bounds", (("share", 0.5),)),
    ]
    assert {cell.workload for cell in plan.make(suite="gpu").cells} == set(parts.PARTS)
    for arguments, reason in (
        ({"suite": "gpu", "parts": ["nothing"]}, "part must be one of bounds, "),
        ({"suite": "gpu", "overrides": {"n_filters": 3}}, "the one parameter share, and not n_fil"),
        ({"suite": "gpu", "overrides": {"share": 2}}, "share must be a number above 0 and up to 1"),
        ({"suite": "smoke", "parts": ["ccm"]}, "parts must be given with the suite gpu"),
        ({"modes": ["gpu"]}, "the mode gpu must be measured by its suite"),
    ):
        with pytest.raises(tamis.ArgumentError, match=reason):
            plan.make(**arguments)  # type: ignore[arg-type]  # of different types


def fake_program(path: Path, lines: list[Any], code: int = 0) -> Path:
    """Stands in for tamis_gpu_bench, which needs a GPU; on one, the suite itself is the test."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(f"#!{sys.executable}\nimport sys\nprint({text!r}, end='')\nsys.exit({code})\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_run_keeps_what_the_program_said_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "cuda_unavailable", lambda: "")  # as above
    failure = {"figure": "failure", "engine": "ccm", "workload": "w", "reason": "wrong answers"}
    program = fake_program(tmp_path / "program", [*CCM, failure], 1)
    monkeypatch.setenv(native.VARIABLE, str(program))
    folder = start(plan.make(suite="gpu", parts=["ccm"]), tmp_path, "run")
    run = run_plan(folder)
    assert not run.is_ok
    assert run.cells[0]["reason"] == "ccm on w: wrong answers"
    assert "ccm: ccm on w: wrong answers" in report.write(run, tmp_path / "page.md")[0].read_text()

    fake_program(program, [*CCM, done("ccm")])
    run = run_plan(folder)
    assert run.is_ok
    assert run.cells[0]["lines"] == CCM
    assert "single" in tamis.bench.tables.show(results.load(folder))

    monkeypatch.setenv(native.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(tamis.UnavailableError, match="tamis_gpu_bench is not at "):
        native.find()


def test_shares_of_kernels_are_read_from_the_table_of_ncu() -> None:
    names = ["ID", "Kernel Name", kernels._TIME, *kernels.METRICS]
    rows = [
        names,
        ["", "", "ns", "%", "%", "%", "%"],
        ["0", "void tamis::cuda::find<3>(Index, int)", "1,000", "10", "20", "30", "40"],
        ["1", "void tamis::cuda::find<3>(Index, int)", "5,000", "50", "60", "70", "80"],
        ["2", "bring(int)", "300", "1", "2", "3", "4"],
    ]
    text = "==PROF== Connected\n" + "\n".join(",".join(f'"{each}"' for each in row) for row in rows)
    found = {each["kernel"]: each for each in kernels.parse(text, "tuple-key-cuda")}
    assert set(found) == {"find", "bring"}
    assert found["find"]["seconds"] == pytest.approx(5e-6)
    assert found["find"]["shares"]["memory"] == pytest.approx(0.5)
    assert list(kernels.parse("==ERROR== no counters", "tuple-key-cuda")) == []


def test_end_to_end_and_crossover_check_answers_and_give_steps() -> None:
    phases: list[str] = []
    ends = list(matching.end_to_end(0.002, phases.append))
    assert {each["engine"] for each in ends} >= {"tuple-key", "auto"}
    for each in [*ends, *matching.crossover(1000, 0.1, phases.append)]:
        assert each["seconds"] > 0
        assert set(each["steps"]) == {"encode", "match", "ids"}
        assert each["verified"] == matching.N_SAMPLE
    assert "naive answers" in phases


def test_wrong_answers_give_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    # No engine answers wrongly, so the truth is made wrong: else nobody knew that it is asked.
    monkeypatch.setattr(matching, "_truth", lambda *_: [{1}] * matching.N_SAMPLE)
    with pytest.raises(tamis.TamisError, match="wrong answers"):
        list(matching.end_to_end(0.002, lambda _: None))
