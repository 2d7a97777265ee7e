"""`tamis check` and the command line: what is reported, for which files, with which exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import tamis
from tamis import cli
from tamis.check import Finding, check


def findings(*texts: str | None) -> list[Finding]:
    return check((f"row {idx}", text) for idx, text in enumerate(texts)).findings


def lints(*texts: str | None) -> list[tuple[str, str]]:
    return [(finding.row, finding.lint) for finding in findings(*texts)]


# ── each predicate alone ────────────────────────────────────────────────────────────


def test_sound_predicates_give_no_findings() -> None:
    assert findings("x = 1", "x > 5 AND s = 'a'", "s LIKE 'a%'", "NEAR(1, 2, 3)", "b = TRUE") == []


def test_no_predicates_are_sound() -> None:
    report = check([])
    assert (report.n_predicates, report.n_errors, report.n_warnings) == (0, 0, 0)


def test_errors_show_the_place() -> None:
    (finding,) = findings("x = 1", "name = 'é' AND # 1")
    assert finding.row == "row 1"
    assert finding.is_error
    line, caret = finding.message.splitlines()[-2:]
    assert line[len(caret) - 1] == "#"


@pytest.mark.parametrize("text", ["", "x =", "x = '\ud800'", None, "(" * 300, "x" * (1 << 21)])
def test_whatever_cannot_be_read_is_an_error_and_the_rest_goes_on(text: str | None) -> None:
    report = check([("a", "x = 1"), ("b", text), ("c", "y = ")])
    assert report.n_predicates == 3
    assert [(each.row, each.is_error) for each in report.findings] == [("b", True), ("c", True)]
    assert report.n_errors == 2
    assert report.n_warnings == 0


@pytest.mark.parametrize("text", ["TRUE", "x = 1 OR TRUE", "NOT FALSE", "TRUE AND TRUE"])
def test_what_matches_every_event_is_reported(text: str) -> None:
    assert lints(text) == [("row 0", "always")]


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "x = 1 AND x = 2",
        "x < 1 AND x > 1",
        "x = 1 AND x = 'a'",
        "x BETWEEN 5 AND 1",
        "x BETWEEN 'b' AND 'a'",
        "x IS NULL AND x = 1",
        "NOT TRUE",
        "NOT EXISTS x AND EXISTS x",
    ],
)
def test_what_can_never_match_is_reported(text: str) -> None:
    assert lints(text) == [("row 0", "never")]


def test_a_part_that_can_never_match_is_reported() -> None:
    (finding,) = findings("y = 1 OR x BETWEEN 5 AND 1")
    assert finding.lint == "never"
    assert "part" in finding.message
    assert "x BETWEEN 5 AND 1" in finding.message
    assert "reversed" in finding.message


@pytest.mark.parametrize("text", ["x LIKE 'abc'", "NOT x LIKE ''", "y = 1 AND x LIKE 'a*'"])
def test_a_pattern_without_wildcards_is_reported(text: str) -> None:
    assert ("row 0", "like") in lints(text)


@pytest.mark.parametrize("text", ["x LIKE 'a%'", "x LIKE '_'", "x LIKE 'a!%' ESCAPE '!'"])
def test_a_pattern_with_wildcards_is_sound(text: str) -> None:
    assert lints(text) == []


@pytest.mark.parametrize(
    "text", ["x > '30'", "x <= '-1.5'", "x BETWEEN '1' AND '5'", "x NOT BETWEEN 'a' AND '9'"]
)
def test_numbers_ordered_as_text_are_reported(text: str) -> None:
    assert lints(text) == [("row 0", "text-order")]


@pytest.mark.parametrize("text", ["x = '30'", "x != '30'", "x IN ('1', '2')", "x > 'abc'"])
def test_numerals_that_are_only_compared_for_equality_are_sound(text: str) -> None:
    assert lints(text) == []


# ── predicates against one another ──────────────────────────────────────────────────


def test_an_attribute_of_another_type_than_elsewhere_is_reported() -> None:
    found = findings(*["temp > 30"] * 9, "temp = 'hot'")
    assert [(each.row, each.lint) for each in found] == [("row 9", "type")]
    assert "temp" in found[0].message
    assert "9 of 10" in found[0].message


@pytest.mark.parametrize(
    "odd", ["t = TRUE", "t LIKE '5%'", "t IN ('a')", "t BETWEEN 'a' AND 'b'", "NOT t = 'a'"]
)
def test_every_kind_of_constraint_has_a_type(odd: str) -> None:
    usual = ["t = 1", "t IN (1, 2)", "t BETWEEN 1 AND 2", "t > TIMESTAMP '2026-01-01'", "t < 1.5"]
    assert lints(*usual, odd) == [("row 5", "type")]


def test_existence_has_no_type() -> None:
    assert lints(*["t = 1"] * 5, "EXISTS t", "t IS NULL", "t IS NOT NULL") == []


def test_without_a_majority_no_type_is_the_odd_one() -> None:
    assert lints("t = 1", "t = 'a'") == []
    assert lints("t = 1", "t = 1", "t = 'a'", "t = 'a'") == []


def test_names_that_differ_in_case_alone_are_reported() -> None:
    found = findings("temp > 1", "temp > 2", "Temp > 3", "TEMP > 4", "other = 1")
    assert [(each.row, each.lint) for each in found] == [("row 2", "case"), ("row 3", "case")]
    assert "Temp" in found[0].message
    assert lints("a = 1", "A = 1") == []  # neither is more common


def test_findings_come_in_the_order_of_rows() -> None:
    rows = lints("x > '5'", "X = 1", "x = ", "FALSE", *["x = 'a'"] * 3)
    assert [row for row, _ in rows] == sorted(row for row, _ in rows)


# ── the command ─────────────────────────────────────────────────────────────────────


def tamis_command(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tamis.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def in_process(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main([str(each) for each in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def write_lines(path: Path, columns: dict[str, list[Any]]) -> None:
    path.write_text("\n".join(columns["predicate"]), encoding="utf-8")


def write_json(path: Path, columns: dict[str, list[Any]]) -> None:
    pa.table(columns).to_pandas().to_json(path, orient="records", lines=True)


WRITERS: dict[str, Callable[[Path, dict[str, list[Any]]], None]] = {
    ".parquet": lambda path, columns: pa.parquet.write_table(pa.table(columns), path),
    ".csv": lambda path, columns: pa.csv.write_csv(pa.table(columns), path),
    ".ndjson": write_json,
    ".jsonl": write_json,
    ".txt": write_lines,
}


@pytest.mark.parametrize("ending", WRITERS)
def test_files_of_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    path = tmp_path / f"some predicates{ending}"
    columns = {"id": ["a", "b", "c"], "predicate": ["x = 'é, \"q\"'", "x # 1", "y LIKE 'a'"]}
    WRITERS[ending](path, columns)
    code, out, err = in_process(capsys, "check", path)
    assert code == 1
    assert err == ""
    labels = ["line 2", "line 3"] if ending == ".txt" else ["id b", "id c"]
    assert f"{path}: {labels[0]}: error: " in out
    assert "x # 1" in out
    assert f"{path}: {labels[1]}: warning (like): " in out
    assert out.endswith("3 predicates, 1 errors, 1 warnings\n")


def test_exit_codes_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, lint, bad = tmp_path / "sound.txt", tmp_path / "lint.txt", tmp_path / "bad.txt"
    sound.write_text("x = 1\n\ny = 2\n", encoding="utf-8")
    lint.write_text("x LIKE 'a'\n", encoding="utf-8")
    bad.write_text("x = 1\nname = 'é' AND # 1\n", encoding="utf-8")
    assert tamis_command("check", sound) == (0, "2 predicates, 0 errors, 0 warnings\n", "")
    assert in_process(capsys, "check", lint)[0] == 0
    assert in_process(capsys, "check", "--strict", lint)[0] == 1
    assert in_process(capsys, "check", "--strict", sound)[0] == 0
    code, out, _ = tamis_command("check", bad)
    assert code == 1
    line, caret = out.splitlines()[-3:-1]
    assert line[len(caret) - 1] == "#"


def test_rows_without_ids_are_counted_from_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.parquet"
    pa.parquet.write_table(pa.table({"predicate": ["x = 1", None, "x ="]}), path)
    code, out, _ = in_process(capsys, "check", path)
    assert code == 1
    assert f"{path}: row 1: error: " in out
    assert f"{path}: row 2: error: " in out


def test_other_columns_do_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.CSV"
    path.write_text("note,id,predicate\nhello,7,x = 1\n,8,y =\n", encoding="utf-8")
    code, out, _ = in_process(capsys, "check", path)
    assert code == 1
    assert "id 8: error" in out
    assert "2 predicates" in out


def test_a_line_of_text_ends_at_a_newline_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes("s = 'a\u2028b\x85c\x0cd'\r\ns # 1\n".encode())
    code, out, _ = in_process(capsys, "check", path)
    assert code == 1
    assert "line 2: error" in out
    assert out.endswith("2 predicates, 1 errors, 0 warnings\n")


def test_an_empty_file_of_lines_is_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.txt"
    path.write_text("", encoding="utf-8")
    assert in_process(capsys, "check", path)[0] == 0


def spoil(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "missing": lambda folder: folder / "nothing.csv",
    "missing-folder": lambda folder: folder / "no" / "nothing.txt",
    "no-ending": lambda folder: spoil(folder / "predicates", b"x = 1"),
    "other-ending": lambda folder: spoil(folder / "predicates.xlsx", b"x = 1"),
    "no-column": lambda folder: spoil(folder / "p.csv", b"id,text\n1,x = 1\n"),
    "broken-parquet": lambda folder: spoil(folder / "p.parquet", b"PAR1 and then nothing"),
    "broken-json": lambda folder: spoil(folder / "p.ndjson", b'{"predicate": "x'),
    "ragged-csv": lambda folder: spoil(folder / "p.csv", b"id,predicate\n1,x = 1,2\n1\n"),
    "empty-csv": lambda folder: spoil(folder / "p.csv", b""),
    "empty-parquet": lambda folder: spoil(folder / "p.parquet", b""),
    "not-utf8": lambda folder: spoil(folder / "p.txt", b"x = '\xff'\n"),
    "csv-not-utf8": lambda folder: spoil(folder / "p.csv", b"predicate\nx = '\xff'\n"),
    "folder": lambda folder: (folder / "p.txt").mkdir() or folder / "p.txt",  # type: ignore[func-returns-value]
    "column-twice": lambda folder: spoil(folder / "p.csv", b"predicate,predicate\nx = 1,x = 1\n"),
    "id-twice": lambda folder: spoil(folder / "p.csv", b"id,id,predicate\n1,2,x = 1\n"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_files_that_cannot_be_read_are_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = UNUSABLE[kind](tmp_path)
    code, out, err = in_process(capsys, "check", path)
    assert code == 2
    assert out == ""
    assert err.startswith("tamis: ")
    assert path.name in err


def test_wrong_use_of_the_command_is_2() -> None:
    for arguments in ((), ("check", "a.txt", "--nonsense")):
        code, out, err = tamis_command(*arguments)
        assert code == 2
        assert out == ""
        assert "usage: tamis" in err


def test_help_names_every_command() -> None:
    code, out, err = tamis_command("--help")
    assert code == 0
    assert err == ""
    for command in ("check", "engines", "bench"):
        assert command in out
    code, out, _ = tamis_command("check", "--help")
    assert code == 0
    for word in (".parquet", ".ndjson", ".csv", ".txt", "--strict", "exit code"):
        assert word in out.replace("Exit", "exit")


def test_version_is_the_package_version() -> None:
    assert tamis_command("--version")[:2] == (0, f"tamis {tamis.__version__}\n")


def test_engines_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(capsys, "engines")
    assert code == 0
    for engine in tamis.engines():
        (line,) = [each for each in out.splitlines() if each.split()[0] == engine.name]
        assert engine.device in line
        assert ("exact" if engine.exact else "approximate") in line
        assert ("(available)" in line) == engine.available


def test_the_installed_command_runs() -> None:
    command = Path(sys.executable).with_name("tamis")
    done = subprocess.run([command, "engines"], capture_output=True, text=True, check=True)
    assert "naive" in done.stdout


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("x =\n" * 20_000, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "tamis.cli", "check", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.wait()
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors
