"""The commands: every format in and out, exit codes, interrupted runs, pipes and terminals."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest

import tamis
from tamis import cli, tables

FORMATS = ("parquet", "ndjson", "csv")
N_EVENTS = 3_000

SUBSCRIPTIONS = pa.table(
    {
        "id": ["hot", "windy", 'odd, "id"'],
        "predicate": ["temp > 30 AND area = 'north'", "wind >= 8.5 OR wind IS NULL", "temp = 7"],
        "subscriber": ["ann", "bob", "ann"],
    }
)
EVENTS = pa.table(
    {
        "temp": [k % 50 for k in range(N_EVENTS)],
        "area": [("north", "south", 'we"st, \nor not')[k % 3] for k in range(N_EVENTS)],
        # Nothing but whole numbers, and nothing at all, at the beginning.
        "wind": [
            None if k < 500 else float(k % 10) if k < 2_000 else k % 9 + 0.5
            for k in range(N_EVENTS)
        ],
        "name": [f"e{k}" for k in range(N_EVENTS)],
    }
)


def write(table: pa.Table, path: Path) -> str:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=700)
    elif path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return str(path)


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".ndjson":
        return [json.loads(line) for line in path.read_text().splitlines()]
    table: pa.Table = (
        pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def matcher_of(table: pa.Table = SUBSCRIPTIONS) -> tamis.Matcher:
    matcher = tamis.Matcher()
    matcher.subscribe_many(table)
    return matcher


def expected_pairs() -> list[tuple[int, str]]:
    return [
        (event, id)
        for event, ids in enumerate(matcher_of().match_many(EVENTS))
        for id in sorted(map(str, ids))
    ]


def run(*words: str, stdin: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tamis.cli", *words],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        **options,
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the subscriptions and events in every format."""
    for form in FORMATS:
        write(SUBSCRIPTIONS, tmp_path / f"subscriptions.{form}")
        write(EVENTS, tmp_path / f"events.{form}")
    return tmp_path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 5_000)


# ── match ───────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_every_format_gives_what_match_many_gives(files: Path, source: str, target: str) -> None:
    out = files / f"out.{target}"
    words = [str(files / f"subscriptions.{source}"), str(files / f"events.{source}")]
    assert cli.main(["match", *words, "-o", str(out), "--batch", "300"]) == 0
    assert sorted((row["event"], row["id"]) for row in read(out)) == expected_pairs()
    assert sorted(path.name for path in files.glob(".*")) == []


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", FORMATS)
def test_lists_and_counts_have_a_row_for_each_event(files: Path, source: str) -> None:
    words = ["match", str(files / "subscriptions.csv"), str(files / f"events.{source}"), "--quiet"]
    expected = matcher_of().match_many(EVENTS)
    for target in ("parquet", "ndjson"):
        out = files / f"out.{target}"
        assert cli.main([*words, "--output", "list", "-o", str(out)]) == 0
        rows = read(out)
        assert [row["event"] for row in rows] == list(range(N_EVENTS))
        assert [sorted(row["ids"]) for row in rows] == [sorted(map(str, ids)) for ids in expected]
    for target in FORMATS:
        out = files / f"out.{target}"
        assert cli.main([*words, "--output", "count", "-o", str(out)]) == 0
        assert [row["count"] for row in read(out)] == expected.counts.tolist()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("source", FORMATS)
def test_an_id_column_names_events_and_subscribers_can_be_delivered(
    files: Path, source: str
) -> None:
    out = files / "out.ndjson"
    words = [str(files / "subscriptions.ndjson"), str(files / f"events.{source}"), "-o", str(out)]
    assert cli.main(["match", *words, "--deliver", "subscribers", "--id-column", "name"]) == 0
    expected = matcher_of().match_many(EVENTS, deliver="subscribers")
    assert sorted((row["event"], row["subscriber"]) for row in read(out)) == sorted(
        (f"e{event}", str(id)) for event, ids in enumerate(expected) for id in ids
    )


def test_many_matches_make_small_parts(
    files: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    from tamis.commands import match

    monkeypatch.setattr(match, "_MANY_MATCHES", 50)
    sizes: list[int] = []
    match_part = match._match_part
    monkeypatch.setattr(
        match,
        "_match_part",
        lambda m, part, *rest: sizes.append(len(part)) or match_part(m, part, *rest),
    )
    out = files / "out.parquet"
    words = [str(files / "subscriptions.csv"), str(files / "events.parquet"), "-o", str(out)]
    assert cli.main(["match", *words]) == 0
    assert sorted((row["event"], row["id"]) for row in read(out)) == expected_pairs()
    assert sizes[0] == 64
    assert max(sizes) <= 64 * 4 * 4
    assert pa.parquet.ParquetFile(out).num_row_groups == 1  # however many parts there were


def test_positions_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    subscriptions = tmp_path / "fences.csv"
    subscriptions.write_text('id,predicate\n1,"NEAR(13.405, 52.52, 30000)"\n')
    events = tmp_path / "cars.csv"
    events.write_text("lon,lat\n13.06,52.39\n151.2,-33.87\n,\n")
    options = ["--space", "earth", "--position", "lon,lat", "--quiet"]
    assert cli.main(["match", str(subscriptions), str(events), *options]) == 0
    assert capfd.readouterr().out == '{"event": 0, "id": 1}\n'


def test_json_lines_come_from_the_standard_input(files: Path) -> None:
    done = run("match", str(files / "subscriptions.csv"), "-", stdin='{"temp": 7, "wind": 1}\n')
    assert done.stdout == '{"event": 0, "id": "odd, \\"id\\""}\n'
    assert done.returncode == 0
    assert done.stderr.startswith("1 events, 1 matches, ")


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_no_events_give_an_empty_result(files: Path, source: str, target: str) -> None:
    events = write(EVENTS.slice(0, 0), files / f"none.{source}")
    out = files / f"out.{target}"
    assert cli.main(["match", str(files / "subscriptions.csv"), events, "-o", str(out)]) == 0
    assert read(out) == []
    if target != "ndjson":
        assert "event" in out.read_bytes().decode("latin-1")


def test_no_subscriptions_match_nothing(files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for form in FORMATS:
        subscriptions = write(SUBSCRIPTIONS.slice(0, 0), files / f"none.{form}")
        assert cli.main(["match", subscriptions, str(files / "events.csv")]) == 0
        assert capfd.readouterr().err.startswith("3,000 events, 0 matches")


# ── types of CSV ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        (["1,TRUE", "-20,TRUE"], [1, -20]),
        (["1,TRUE", "007,TRUE"], ["1", "007"]),
        (["1,TRUE", "x,TRUE"], ["1", "x"]),
        (["1,TRUE", "99999999999999999999,TRUE"], ["1", "99999999999999999999"]),
        (["2026-11-15,TRUE"], ["2026-11-15"]),
    ],
)
def test_ids_of_csv_are_integers_if_all_are_written_so(
    tmp_path: Path, rows: list[str], ids: list[Any]
) -> None:
    path = tmp_path / "subscriptions.csv"
    path.write_text("\n".join(["id,predicate", *rows, ""]))
    assert tables.read_subscriptions(path).column("id").to_pylist() == ids


def test_ids_and_subscribers_of_csv_have_one_type(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.csv"
    path.write_text("id,predicate,subscriber\n1,TRUE,ann\n2,TRUE,7\n")
    table = tables.read_subscriptions(path)
    assert table.column("id").to_pylist() == ["1", "2"]
    assert table.column("subscriber").to_pylist() == ["ann", "7"]
    path.write_text("id,predicate,subscriber\n1,TRUE,99999999999999999999\n")
    assert tables.read_subscriptions(path).column("id").to_pylist() == ["1"]


def test_an_id_of_json_that_looks_like_a_time_stays_a_string(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.ndjson"
    path.write_text('{"id": "2026-11-15T00:00:00", "predicate": "TRUE"}\n')
    assert tables.read_subscriptions(path).column("id").to_pylist() == ["2026-11-15T00:00:00"]


def csv_types(path: Path, *rows: str) -> dict[str, pa.DataType]:
    path.write_text("\n".join(rows) + "\n")
    piece = next(tables.EventFile(str(path)).pieces())
    assert isinstance(piece, tables.Rows)
    return {column.name: column.type for column in piece.batch.schema}


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        ("", "5", pa.int64()),
        ("5", "", pa.int64()),
        ("5", "5.5", pa.float64()),
        ("5", "x", pa.string()),
        ("true", "false", pa.bool_()),
        ("true", "7", pa.string()),
        ("2026-11-15", "2026-11-15 10:00:00", pa.timestamp("ns")),
        ("2026-11-15 10:00:00", "2026-11-15 10:00:00.5", pa.timestamp("ns")),
        ("2026-11-15", "x", pa.string()),
        ("10:00:00", "11:00:00", pa.string()),
        ("007", "NA", pa.string()),
    ],
)
def test_the_type_of_a_csv_column_is_that_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, later: str, expected: pa.DataType
) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 30)
    rows = [f"{first},fill", *["," + "y" * 20] * 5, f"{later},fill"]
    assert csv_types(tmp_path / "events.csv", "a,b", *rows)["a"] == expected


def test_an_empty_cell_is_absent_and_a_quoted_one_is_an_empty_string(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.csv").write_text("id,predicate\n1,a IS NULL\n2,a = ''\n")
    (tmp_path / "e.csv").write_text('a,b\n,1\n"",1\nx,1\n')
    assert cli.main(["match", str(tmp_path / "s.csv"), str(tmp_path / "e.csv"), "--quiet"]) == 0
    assert capfd.readouterr().out == '{"event": 0, "id": 1}\n{"event": 1, "id": 2}\n'


# ── bad input ───────────────────────────────────────────────────────────────────────

GOOD = {"s.csv": "id,predicate\n1,a > 1\n", "e.ndjson": '{"a": 2}\n'}


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"s.csv": "id,predicate,extra\n"}, [], "the columns must be id, predicate and, if wanted"),
        ({"s.csv": "id,predicate\n1,a >\n"}, [], "row 0: expected a value, not the end"),
        ({"s.csv": "id,predicate\n,a > 1\n"}, [], "column id must have no nulls"),
        ({"e.ndjson": '{"a": 2}\n' * 700 + "oops\n"}, [], "e.ndjson: line 701, column 1: an event"),
        ({}, ["--engine", "nobody"], "engine must be one of auto, "),
        ({}, ["--id-column", "key"], "line 1 has no key, which is to name it"),
        (
            {"e.ndjson": '{"a": 1}\n{"a": "x"}\n'},
            ["--id-column", "a"],
            "line 2: a must be an integer",
        ),
        ({}, ["-o", "missing/out.csv"], "there is no folder"),
        ({}, ["-o", "out.txt"], "the name must end in one of"),
        ({}, ["-o", "out.csv", "--output", "list"], "CSV has no lists"),
        ({}, ["--space", "earth", "--position", "a,a", "--batch", "1"], None),
        (
            {"e.ndjson": '{"a": 2}\n{"a": 400}\n'},
            ["--space", "earth", "--position", "a,a", "--batch", "1"],
            "e.ndjson: event 1: on earth",
        ),
    ],
)
def test_bad_input_is_an_error_with_code_2_and_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    files: dict[str, str],
    options: list[str],
    message: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {**GOOD, **files}.items():
        Path(name).write_text(text)
    if "-o" not in options:
        options = [*options, "-o", "out.ndjson"]
    code = cli.main(["match", "s.csv", "e.ndjson", *options])
    if message is None:
        assert code == 0
        return
    assert code == 2
    error = capfd.readouterr().err
    assert error.startswith("tamis: ")
    assert message in error
    assert sorted(os.listdir()) == ["e.ndjson", "s.csv"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.ndjson", '{"id": 1}\n', "the columns must be id, predicate"),
        ("s.ndjson", "{oops\n", "line 1 is no JSON"),
        ("s.ndjson", "5\n", "line 1 must be an object with id and predicate, not 5"),
        ("s.ndjson", '{"id": 1, "predicate": 5}\n', "each predicate must be a string"),
        ("s.ndjson", '{"id": 1.5, "predicate": "TRUE"}\n', "each id must be an integer, or each"),
        ("s.ndjson", '{"id": true, "predicate": "TRUE"}\n', "each id must be an integer, or each"),
        (
            "s.ndjson",
            '{"id": 1, "predicate": "TRUE"}\n{"id": 2}\n',
            "line 2 must have the keys of the first line, id, predicate, not id",
        ),
        ("s.parquet", "oops", "cannot be read as parquet"),
        (
            "s.tsv",
            "oops",
            "the name must end in one of .parquet, .ndjson, .jsonl, .csv, not '.tsv'",
        ),
    ],
)
def test_bad_subscriptions_say_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(tamis.ArgumentError) as error:
        tables.read_subscriptions(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(tamis.ArgumentError, match="there is no such file"):
        tables.read_subscriptions(tmp_path / "nothing.csv")


def test_an_existing_file_survives_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text(GOOD["s.csv"])
    Path("e.ndjson").write_text('{"a": 2}\noops\n')
    Path("out.ndjson").write_text("before")
    assert cli.main(["match", "s.csv", "e.ndjson", "-o", "out.ndjson"]) == 2
    assert Path("out.ndjson").read_text() == "before"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("name", "head", "good", "bad", "reason"),
    [
        ("e.ndjson", "", '{"a": 2}', "oops", "line 1001, column 1: an event must be"),
        ("e.csv", "a,b\n", "2,x", "2", "row 1000 must have 2 columns, as the header has, not 1"),
    ],
)
def test_bad_lines_can_be_skipped_and_keep_their_numbers(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    head: str,
    good: str,
    bad: str,
    reason: str,
) -> None:
    (tmp_path / "s.csv").write_text(GOOD["s.csv"])
    lines = [good] * 3_000
    for place in (1_000, 2_000, 2_001):
        lines[place] = bad
    events = tmp_path / name
    events.write_text(head + "\n".join(lines) + "\n")
    words = ["match", str(tmp_path / "s.csv"), str(events), "-o", str(tmp_path / "out.ndjson")]
    assert cli.main(words) == 2
    assert reason in capfd.readouterr().err
    assert cli.main([*words, "--skip-bad-lines"]) == 0
    error = capfd.readouterr().err
    assert reason in error
    assert "2,997 events, 3 skipped, 2,997 matches" in error
    places = [row["event"] for row in read(tmp_path / "out.ndjson")]
    assert places == [place for place in range(3_000) if place not in (1_000, 2_000, 2_001)]


def test_an_id_that_stands_twice_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.csv").write_text("id,predicate\n1,a > 5\n1,a > 1\n")
    (tmp_path / "e.ndjson").write_text(GOOD["e.ndjson"])
    assert cli.main(["match", str(tmp_path / "s.csv"), str(tmp_path / "e.ndjson")]) == 0
    output = capfd.readouterr()
    assert "1 rows have an id that a later row has" in output.err
    assert output.out == '{"event": 0, "id": 1}\n'


# ── processes ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("target", ["ndjson", "parquet"])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, target: str
) -> None:
    subscriptions = tmp_path / "s.csv"
    subscriptions.write_text(GOOD["s.csv"])
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tamis.cli",
            "match",
            str(subscriptions),
            "-",
            "-o",
            f"out.{target}",
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(GOOD["e.ndjson"].encode() * 1_000_000)  # more than a block, no end
        process.stdin.flush()
        deadline = time.monotonic() + 30
        while not [path for path in tmp_path.glob(".*.part") if path.stat().st_size]:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        for _ in range(3):  # a signal just before a read that waits is noticed after it
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
                break
        assert process.wait(timeout=5) == code
        error = process.stderr.read().decode()
    assert os.listdir(tmp_path) == ["s.csv"]
    assert error == ("tamis: interrupted\n" if number == signal.SIGINT else "")


@pytest.mark.parametrize("target", FORMATS)
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "s.csv").write_text("id,predicate\n1,TRUE\n")
    (tmp_path / "e.ndjson").write_text("{}\n" * 600_000)
    with subprocess.Popen(
        [sys.executable, "-m", "tamis.cli", "match", "s.csv", "e.ndjson", "--format", target],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=30) == 0


def on_terminal(words: list[str], folder: Path, is_stdout_too: bool = False) -> str:
    """What a command writes to a terminal on stderr."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tamis.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=inner if is_stdout_too else subprocess.DEVNULL,
        stderr=inner,
        cwd=folder,
    )
    os.close(inner)
    shown = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # the other end was closed
            break
        if not more:
            break
        shown += more
    os.close(terminal)
    assert process.wait(timeout=30) == 0
    return shown.decode()


def test_a_terminal_shows_progress_and_nothing_else_does(files: Path) -> None:
    words = ["match", "subscriptions.csv", "events.csv", "-o", "out.csv", "--batch", "10"]
    shown = on_terminal(words, files)
    assert "events, " in shown
    assert " a second, " in shown
    assert "▕" in shown
    assert "\r\x1b[2K" in shown
    assert shown.rstrip().splitlines()[-1].endswith(" s")
    assert "3,000 events, " in shown.rpartition("\x1b[2K")[2]

    assert on_terminal([*words, "--quiet"], files) == ""

    done = run(*words, cwd=files)
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_progress_does_not_mix_with_results_on_one_terminal(files: Path) -> None:
    shown = on_terminal(["match", "subscriptions.csv", "events.csv"], files, is_stdout_too=True)
    assert '{"event": 1, "id": "windy"}' in shown
    assert "\x1b" not in shown


def test_lines_of_a_pipe_are_matched_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(GOOD["s.csv"])
    with subprocess.Popen(
        [sys.executable, "-m", "tamis.cli", "match", "s.csv", "-", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for event in range(3):
            process.stdin.write(GOOD["e.ndjson"].encode())
            process.stdin.flush()
            assert process.stdout.readline() == f'{{"event": {event}, "id": 1}}\n'.encode()
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_what_python_runs_is_also_installed_as_a_command() -> None:
    command = Path(sys.executable).parent / "tamis"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tamis {tamis.__version__}\n"


# ── explain, engines, check ─────────────────────────────────────────────────────────


def test_explain_shows_why_and_exits_with_1_after_a_miss(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = '{"temp": 25, "area": "north"}'
    for form in FORMATS:
        assert cli.main(["explain", str(files / f"subscriptions.{form}"), "hot", event]) == 1
        assert capsys.readouterr().out == (
            "✗ temp > 30 AND area = 'north': 1 of 2 parts did not hold\n"
            "  ✗ temp > 30: temp is 25, not above 30\n"
            "  ✓ area = 'north': area is 'north'\n"
            "it does not match: temp is 25, not above 30\n"
        )
    assert cli.main(["explain", "--predicate", "temp > 20", event]) == 0
    assert capsys.readouterr().out == "✓ temp > 20: temp is 25, above 20\nit matches\n"


def test_explain_takes_positions_nested_events_and_integer_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.csv"
    path.write_text('id,predicate\n7,"NEAR(-73.97, 40.78, 300) AND data.level = 1"\n')
    event = '{"data": {"level": 1, "list": [1]}, "lon": -73.97, "lat": 40.79}'
    words = ["--space", "earth", str(path), "7"]
    assert cli.main(["explain", "--at", "-73.97,40.78", *words, event]) == 0
    assert cli.main(["explain", "--position", "lon,lat", *words, event]) == 1
    assert "1112 m from the centre, outside 300 m" in capsys.readouterr().out
    assert cli.main(["explain", *words, event]) == 1
    assert "the event has no position" in capsys.readouterr().out


def test_explain_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "--json", "--predicate", "a = 'ü' OR b = 1", '{"a": "u"}']) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["matched"] is False
    assert [part["outcome"] for part in found["parts"]] == ["failed", "unknown"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--predicate", "a >", "{}"], "expected a value, not the end"),
        (["--predicate", "a > 1", "{oops"], "line 1, column 2: expected a key"),
        (["--predicate", "a > 1", " "], "EVENT must be one JSON object"),
        (["--predicate", "a > 1", '{"a": [1]}'], "attribute a must be a number"),
        (["nothing.csv", "1", "{}"], "there is no such file"),
        (["s.csv", "9", "{}"], "no subscription has the id 9"),
        (["s.csv", "x", "{}"], "its ids are integers, and 'x' is none"),
        (["s.csv", "{}"], "SUBSCRIPTIONS and ID are needed, or --predicate"),
        (["--predicate", "a > 1", "s.csv", "1", "{}"], "either --predicate or SUBSCRIPTIONS"),
        (["--predicate", "a > 1", "--at", "1;2", "{}"], "must be two numbers"),
    ],
)
def test_explain_used_wrongly_exits_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text(GOOD["s.csv"])
    try:
        code: Any = cli.main(["explain", *words])
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_engines_are_listed_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["engines"]) == 0
    lines = capsys.readouterr().out
    assert cli.main(["engines", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [engine["name"] for engine in found] == [engine.name for engine in tamis.engines()]
    naive = next(engine for engine in found if engine["name"] == "naive")
    assert naive["available"] is True
    assert naive["exact"] is True
    assert all(engine["name"] in lines for engine in found)


@pytest.mark.parametrize("form", [*FORMATS, "txt"])
def test_check_reports_and_exits_with_1_after_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    path = tmp_path / f"s.{form}"
    texts = ["a > 1", "a >", "b LIKE 'x'"]
    if form == "txt":
        path.write_text("\n".join(texts))
    else:
        write(pa.table({"id": [1, 2, 3], "predicate": texts}), path)
    assert cli.main(["check", str(path)]) == 1
    output = capsys.readouterr().out
    assert "2: error: expected a value" in output
    assert "3: warning (like)" in output
    assert output.endswith("3 predicates, 1 errors, 1 warnings\n")


@pytest.mark.parametrize("command", [[], ["match"], ["explain"], ["check"], ["engines"]])
def test_every_command_has_help_with_examples(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "examples" in text
    assert "%(" not in text


def test_an_ascii_terminal_is_no_error() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("explain", "--predicate", "a > 1", '{"a": 2}', env=environment)
    assert done.returncode == 0
    assert done.stdout.startswith("\\u2713 a > 1")
