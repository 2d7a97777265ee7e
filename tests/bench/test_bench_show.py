"""Tables, bars, plots, lists, and the exit codes of the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tamis.bench
from tamis.bench.plan import ENGINE_MODES, MICRO_MODES
from tamis.bench.tables import bar_of, count, duration

MODES = (*ENGINE_MODES, *MICRO_MODES)  # of the suite smoke


def test_every_mode_has_a_table_of_its_own(smoke: tamis.bench.Run) -> None:
    text = tamis.bench.show(smoke)
    lines = text.splitlines()
    titles = [line.split(":")[0] for line in lines if line.split(":")[0] in MODES]
    assert titles == list(MODES)
    assert "p50" in text
    assert "B/constraint" in text
    assert "█" in text
    assert smoke.about["command"] in text
    assert smoke.about["date"] in text


def test_markdown_has_tables_and_no_bars(
    smoke: tamis.bench.Run, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("bench", "show", str(smoke.path), "--markdown") == 0
    text = capsys.readouterr().out
    assert text.count("| --- |") >= len(MODES)
    assert "█" not in text
    assert f"`{smoke.about['command']}`" in text


def test_a_single_file_can_be_shown(
    smoke: tamis.bench.Run, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next(smoke.path.glob("latency-hem*.json"))
    assert main("bench", "show", str(file)) == 0
    text = capsys.readouterr().out
    assert "hem-default" in text
    assert "pcm-default" not in text.split("Linux")[0]


def test_a_wrong_cell_is_shown_without_a_number(smoke: tamis.bench.Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(smoke.path, folder)
    file = next(folder.glob("latency-hem*naive*.json"))
    result = json.loads(file.read_text())
    result |= {"status": "wrong", "reason": "wrong answer: event 3: missing 17"}
    del result["series"]
    file.write_text(json.dumps(result))
    text = tamis.bench.show(tamis.bench.load(folder))
    rows = text.split("latency:")[1].splitlines()
    row = next(line for line in rows if "hem-default" in line and " naive " in line)
    assert row.rstrip().endswith("WRONG")
    assert "event 3: missing 17" in text


def test_plots_are_written_one_for_each_mode(
    smoke: tamis.bench.Run, main: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = tmp_path / "run.html", tmp_path / "run.png"
    code = main("bench", "show", str(smoke.path), "--html", str(page), "--png", str(picture))
    assert code == 0
    assert f"wrote {page}" in capsys.readouterr().out
    pictures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert pictures == sorted(f"run-{mode}.png" for mode in MODES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))
    text = page.read_text()
    assert text.count("<table>") == text.count("data:image/png") == len(MODES)
    assert smoke.about["date"] in text


def test_list_names_what_there_is(
    smoke: tamis.bench.Run, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("bench", "list", "--out", str(smoke.path.parent)) == 0
    text = capsys.readouterr().out
    for name in ("pcm-default", "naive", "foundation", "throughput", "smoke: 20"):
        assert name in text
    assert main("bench", "list", "runs", "--out", "nowhere") == 0
    assert capsys.readouterr().out == "runs\n  none in nowhere\n"


def test_run_writes_where_it_is_told_and_reports_each_cell(
    tmp_path: Path, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "bench run --workload pcm-default --workload hem-default --engine naive --seed 7 "
        "--set n_filters=30 --set hem-default:n_subscriptions=20 --threads 1 --mode latency "
        f"--repeat 1 --events 5 --name run --out {tmp_path}"
    )
    code = main(*arguments.split())
    shown = capsys.readouterr()
    assert code == 0
    assert "note: hem-default has no parameter n_filters" in shown.err
    assert "[1/2] latency pcm-default n_filters=30 seed=7 naive ok" in shown.err
    assert "2 cells in" in shown.out
    assert all(each["workload"]["seed"] == 7 for each in tamis.bench.load(tmp_path / "run").cells)


def test_quiet_says_nothing(tmp_path: Path, main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "bench run --mode parse --set n_subscriptions=5 --repeat 1 --quiet --out"
    assert main(*arguments.split(), str(tmp_path)) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "something to measure must be given"),
        ("run --suite nosuch", "suite must be one of smoke, defaults, foundation, live, "),
        ("run --workload pcm-defualt", "did you mean pcm-default"),
        ("run --workload pcm-default --engine x", "engine must be auto or one of"),
        ("run --workload pcm-default --set n_filters", "--set must be NAME=VALUE"),
        ("run --resume nowhere", "nowhere must be a run"),
        ("run --resume . --repeat 3", "--repeat must not be given with --resume"),
        ("show nowhere", "nowhere must be a run"),
        ("report nowhere page.md", "nowhere must be a run"),
        ("report nowhere page.html", "FILE must end in .md, not be page.html"),
        ("run --suite papers --cell-seconds 0", "cell_seconds must be a number above 0"),
    ],
)
def test_mistakes_are_a_line_and_exit_code_2(
    arguments: str, message: str, main: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("bench", *arguments.split()) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("tamis bench: ")
    assert message in shown


@pytest.mark.parametrize("command", ["run", "list", "compare", "show", "report"])
def test_help_has_examples(command: str, main: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main("bench", command, "--help")
    assert exit_.value.code == 0
    assert f"tamis bench {command}" in capsys.readouterr().out.split("examples:")[1]


def test_numbers_have_three_digits_and_a_unit() -> None:
    numbers = [276, 10_812, 1_036_000, 2_300_000_000, 999.9, 0]
    assert [duration(each) for each in numbers] == [
        "276 ns",
        "10.8 µs",
        "1.04 ms",
        "2.30 s",
        "1.00 µs",
        "0 ns",
    ]
    assert [count(each) for each in (950, 12_345, 4_100_000)] == ["950", "12.3 k", "4.10 M"]


def test_bars_are_as_long_as_their_share() -> None:
    assert bar_of(1, 4) == "████"
    assert bar_of(0.5, 4) == "██"
    assert bar_of(0, 4) == "▏"
    assert bar_of(3 / 32, 4) == "▍"
