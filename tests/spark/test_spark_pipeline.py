"""`tamis pipeline`: what it reads, what it writes, what it says."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import tamis.spark as ts
from tamis import ArgumentError
from tamis.cli import main
from tamis.spark.pipeline import EXAMPLE, Config, read_config, run_pipeline
from tamis.spark.pipeline.failures import Interrupted, PipelineError
from tamis.spark.pipeline.report import Report
from tamis.spark.taskstats import StatsOfTask

SLOW = "java_method('java.lang.Thread', 'sleep', 200L) AS slept"
"""A column whose every row takes a fifth of a second."""

# Events 0 to 19 of temp 0 to 19; 10 is above 9, so all but the first ten match.
N_EVENTS = 20
N_MATCHES = 10


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tamis.cli", "pipeline", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def start(*words: str, **others: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tamis.cli", "pipeline", "run", *words]
    others = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **others}
    return subprocess.Popen(command, text=True, **others)


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Spark tells by its files, and in no other way."""
    for _ in range(6000):
        if is_so() or process.poll() is not None:
            return
        time.sleep(0.05)
    raise AssertionError("nothing happened in five minutes")


def flags(folder: Path, **settings: Any) -> list[str]:
    """A run by flags alone; `events__path` is events.path."""
    every = {
        "index__path": folder / "index",
        "events__format": "json",
        "events__path": folder / "events",
        "events__schema": "event int, temp int",
        "events__id": "event",
        "matches__path": folder / "matches",
        "spark__master": "local[1]",
        "spark__conf": "spark.driver.memory=512m",
        **settings,
    }
    return [f"--set={name.replace('__', '.')}={value}" for name, value in every.items()]


def run_here(
    spark: SparkSession, folder: Path, progress: Callable[..., None] | None = None, **settings: Any
) -> Report:
    texts = [flag.removeprefix("--set=").partition("=") for flag in flags(folder, **settings)]
    config = read_config(None, {name: text for name, _, text in texts})
    return run_pipeline(config, progress or (lambda text, share: None), spark=spark)


def write_events(folder: Path, name: str = "0", begin: int = 0, end: int = N_EVENTS) -> None:
    (folder / "events").mkdir(exist_ok=True)
    lines = [f'{{"event": {k}, "temp": {k}}}\n' for k in range(begin, end)]
    aside = folder / name
    aside.write_text("".join(lines))
    aside.rename(folder / "events" / f"{name}.json")  # a stream sees all of it or nothing


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Path:
    """With an index of two subscriptions, and events."""
    frame = spark.createDataFrame([(1, "temp > 9"), (2, "temp > 99")], "id int, predicate string")
    ts.build_index(frame, tmp_path / "index")
    write_events(tmp_path)
    return tmp_path


STREAM = {"events__stream": "true", "events__trigger": "1 second"}


def test_a_pipeline_runs_from_files_to_files_and_reports(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "alerts.csv").write_text(
        "id,predicate\n1,temp > 30\n2,temp > 20\n3,temp >\n4,temp < 0\n"
    )
    events = pa.table({"event": list(range(100)), "temp": [k % 50 for k in range(100)]})
    pq.write_table(events, tmp_path / "events.parquet")
    file = tmp_path / "pipeline.toml"
    assert main(["pipeline", "init", str(file)]) == 0
    done = run(
        "run",
        str(file),
        "--master=local[1]",
        f"--report={tmp_path / 'report.html'}",
        *(
            f"--set={text}"
            for text in (
                f"subscriptions.path={tmp_path / 'alerts.csv'}",
                f"index.path={tmp_path / 'index'}",
                f"events.path={tmp_path / 'events.parquet'}",
                f"matches.path={tmp_path / 'matches'}",
                "spark.conf=spark.driver.memory=512m",
            )
        ),
    )
    assert done.returncode == 0, done.stderr
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    temperatures = {k: k % 50 for k in range(100)}
    assert {tuple(row) for row in rows} == {
        (event, str(id))
        for event, temp in temperatures.items()
        for id, limit in ((1, 30), (2, 20))
        if temp > limit
    }
    assert "3 subscriptions in 1 shards, 1 rows rejected" in done.stdout
    assert "events     100 in" in done.stdout
    assert f"matches    {len(rows)}" in done.stdout
    page = (tmp_path / "report.html").read_text()
    assert "Busiest subscriptions" in page
    assert "Slowest subscriptions" in page
    assert "<script" not in page


def test_executors_in_processes_of_their_own_tell_what_they_did(folder: Path) -> None:
    done = run(
        "run",
        *flags(
            folder,
            spark__master="local-cluster[2,1,1024]",
            spark__conf="spark.driver.memory=512m,spark.executor.memory=512m",
        ),
    )
    assert done.returncode == 0, done.stderr
    assert f"events     {N_EVENTS} in" in done.stdout
    assert f"matches    {N_MATCHES}\n" in done.stdout


def test_a_folder_for_statistics_that_a_worker_does_not_see_is_an_error(tmp_path: Path) -> None:
    stats = StatsOfTask(str(tmp_path / "elsewhere"))
    stats.add(1, 1, 0.0)
    with pytest.raises(FileNotFoundError):
        stats.finish()


# ── sources and sinks ──


def test_sources_and_sinks_need_no_path(spark: SparkSession, folder: Path) -> None:
    report = run_here(
        spark,
        folder,
        events__format="rate-micro-batch",
        events__path="",
        events__schema="",
        events__options="rowsPerBatch=50",
        events__select='["value AS event", "CAST(value % 20 AS int) AS temp"]',
        events__stream="true",
        events__trigger="0 seconds",
        events__checkpoint=folder / "checkpoint",
        matches__format="noop",
        matches__path="",
        matches__select='["CAST(event AS STRING) AS key", "to_json(struct(*)) AS value"]',
        progress=stop_after(lambda: (folder / "checkpoint" / "commits" / "1").exists()),
    )
    assert report.n_events == 50 * report.n_batches
    assert report.n_matches > 0
    assert any("rate-micro-batch is not a valid" in note for note in report.notes)


def stop_after(is_enough: Callable[[], bool]) -> Callable[[str, float | None], None]:
    """Presses Ctrl-C when that is so."""
    pressed = []

    def progress(text: str, share: float | None) -> None:
        if not pressed and is_enough():
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    return progress


def test_batches_of_a_stream_are_added_to_a_sink_without_a_path(
    spark: SparkSession, folder: Path
) -> None:
    write_events(folder, "1", N_EVENTS, N_EVENTS + 5)
    # Derby comes with Spark, and would write its log where the tests are started.
    log = str(folder / "derby.log")
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", log)
    url = f"jdbc:derby:memory:{folder.name};create=true"
    table = {"url": url, "dbtable": "matches", "driver": "org.apache.derby.jdbc.EmbeddedDriver"}
    report = run_here(
        spark,
        folder,
        events__stream="true",
        events__checkpoint=folder / "checkpoint",
        events__options="maxFilesPerTrigger=1",
        matches__format="jdbc",
        matches__path="",
        matches__options=",".join(f"{name}={value}" for name, value in table.items()),
    )
    assert report.n_batches == 2
    rows = spark.read.format("jdbc").options(**table).load().collect()
    assert sorted(row[0] for row in rows) == list(range(10, N_EVENTS + 5))


def test_matches_are_added_where_the_mode_says_so(spark: SparkSession, folder: Path) -> None:
    for mode in ("overwrite", "append", "append"):
        report = run_here(spark, folder, matches__mode=mode)
    assert spark.read.parquet(str(folder / "matches")).count() == 3 * N_MATCHES
    assert report.busiest == [(1, N_MATCHES)]  # of this run
    assert "sample" in report.busiest_in


def test_an_index_in_regions_is_built_and_events_are_routed(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_events(tmp_path)
    alerts = "".join(f"{k},temp > {k} AND temp < {k + 3}\n" for k in range(20))
    (tmp_path / "alerts.csv").write_text("id,predicate\n" + alerts)
    report = run_here(
        spark,
        tmp_path,
        subscriptions__format="csv",
        subscriptions__path=tmp_path / "alerts.csv",
        subscriptions__options="header=true",
        subscriptions__select='["CAST(id AS long) AS id", "predicate"]',
        index__shards=3,
        index__partition_by="temp",
        matches__route="always",
        matches__max_mapped_bytes=10_000,
    )
    assert ts.IndexRef.open(tmp_path / "index").manifest.partition_by == "temp"
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    expected = [(k, id) for k in range(20) for id in (k - 2, k - 1) if id >= 0]
    assert sorted(map(tuple, rows)) == expected
    assert report.n_matches == len(expected)
    with pytest.raises(ArgumentError, match="route must be auto"):
        run_here(spark, tmp_path, matches__route="sideways")


# ── Ctrl-C ──


def test_ctrl_c_in_a_batch_of_a_stream_ends_it_when_the_batch_is_written(
    spark: SparkSession, folder: Path
) -> None:
    select = f'["event", "subscription", "{SLOW}"]'
    checkpoint = folder / "checkpoint"
    settings = {**STREAM, "events__checkpoint": checkpoint, "matches__select": select}
    process = start(*flags(folder, **settings))
    wait_until((folder / "matches" / "batch=0" / "_temporary").exists, process)
    os.kill(process.pid, signal.SIGINT)
    write_events(folder, "1")
    shown, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "batches    1," in shown
    assert (checkpoint / "commits" / "0").exists()
    rows = spark.read.parquet(str(folder / "matches")).collect()
    assert sorted(row["event"] for row in rows) == list(range(10, N_EVENTS))


def test_the_second_ctrl_c_ends_a_stream_at_once(spark: SparkSession, folder: Path) -> None:
    def press(text: str, share: float | None) -> None:
        if (folder / "matches" / "batch=0" / "_temporary").exists():
            os.kill(os.getpid(), signal.SIGINT)

    settings = {**STREAM, "events__checkpoint": folder / "checkpoint"}
    before = signal.getsignal(signal.SIGINT)
    slow = f'["event", "subscription", "{SLOW}"]'
    with pytest.raises(Interrupted, match="at once"):
        run_here(spark, folder, progress=press, matches__select=slow, **settings)
    assert signal.getsignal(signal.SIGINT) is before
    while spark.streams.active:  # its job is cancelled, and Spark takes note of that
        time.sleep(0.05)
    assert not (folder / "checkpoint" / "commits" / "0").exists()
    report = run_here(spark, folder, **{**settings, "events__trigger": "available"})
    assert report.n_batches == 1
    assert spark.read.parquet(str(folder / "matches")).count() == N_MATCHES


def test_ctrl_c_cancels_a_table_and_leaves_nothing_of_it(folder: Path) -> None:
    process = start(*flags(folder, matches__select=f'["event", "{SLOW}"]'))
    wait_until((folder / "matches" / "_temporary").exists, process)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert errors.endswith("tamis: interrupted; no match was written\n")
    assert "Traceback" not in errors
    assert not [path for path in (folder / "matches").rglob("*") if path.is_file()]


def test_progress_on_a_terminal_and_ctrl_c_while_the_index_is_built(tmp_path: Path) -> None:
    write_events(tmp_path)
    (tmp_path / "alerts.csv").write_text("".join(f"{k},temp > {k}\n" for k in range(100)))
    ours, theirs = pty.openpty()
    process = start(
        *flags(
            tmp_path,
            subscriptions__format="csv",
            subscriptions__path=tmp_path / "alerts.csv",
            subscriptions__select=f'["_c0 AS id", "concat(_c1, coalesce({SLOW[:-9]}, \'\')) AS '
            'predicate"]',
            index__shards=1,
        ),
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while b"building the index, 0 of 1 tasks" not in shown:
        shown += os.read(ours, 4096)
    os.kill(process.pid, signal.SIGINT)
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    assert process.wait(timeout=600) == 130
    assert b"\r\x1b[2K" in shown
    assert b"stopping: building the index" in shown
    assert shown.endswith(
        b"tamis: interrupted; there is no new version of the index, and no match\r\n"
    )
    assert not (tmp_path / "index" / "versions").exists()
    assert not (tmp_path / "matches").exists()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other side has closed it
        return b""


# ── the report ──


def test_a_column_of_a_type_that_nobody_asks_for_is_no_matter(
    spark: SparkSession, folder: Path
) -> None:
    rows = [(k, k, (k, "x"), [k], Decimal(k), b"x") for k in range(N_EVENTS)]
    schema = "event int, temp int, a struct<b: int, c: string>, d array<int>, e decimal, f binary"
    spark.createDataFrame(rows, schema).write.parquet(str(folder / "table"))
    table = {"events__format": "parquet", "events__path": folder / "table", "events__schema": ""}
    report = run_here(spark, folder, **table)
    assert {id for id, *_ in report.slowest} == {1, 2}
    assert not report.notes
    assert "each alone on the engine naive" in "\n".join(report.lines())


def test_matches_in_files_without_names_are_read_again(spark: SparkSession, folder: Path) -> None:
    report = run_here(spark, folder, matches__format="csv")
    assert report.busiest == [(1, N_MATCHES)]
    assert report.busiest_in == "this run"


def test_what_the_report_cannot_know_is_said_and_no_failure(
    spark: SparkSession, folder: Path
) -> None:
    # A sink with a path that cannot be read: the busiest are not known, the slowest are.
    report = run_here(spark, folder, matches__format="noop")
    assert report.n_matches == N_MATCHES
    assert report.slowest
    (note,) = report.notes
    assert note.startswith("busiest    not known: ")
    assert note in report.lines()
    assert "\n" not in note


@pytest.mark.parametrize(
    "settings",
    [
        {"matches__output": "list"},
        {"matches__output": "count"},
        {"matches__deliver": "subscribers"},
        {"matches__format": "noop", "matches__path": ""},
    ],
)
def test_the_busiest_subscriptions_are_known_whatever_is_written(
    spark: SparkSession, folder: Path, settings: dict[str, str]
) -> None:
    report = run_here(spark, folder, **settings)
    assert report.busiest == [(1, N_MATCHES)]
    text = "\n".join(report.lines())
    where = "this run" if settings == {"matches__output": "list"} else "a sample of 2,000 events"
    assert f"busiest subscriptions: matches in {where}" in text


def test_a_report_that_cannot_be_written_is_no_failure(
    folder: Path,
) -> None:
    done = run("run", *flags(folder), f"--report={folder / 'missing' / 'report.html'}")
    assert done.returncode == 0, done.stderr
    assert "report     not written: " in done.stdout


def test_the_report_of_a_stream_is_of_its_own_batches(spark: SparkSession, folder: Path) -> None:
    checkpoint = folder / "checkpoint"
    settings = {**STREAM, "events__checkpoint": checkpoint}
    first = run_here(spark, folder, **{**settings, "events__trigger": "available"})
    assert (first.n_batches, first.busiest) == (1, [(1, N_MATCHES)])
    assert first.slowest
    steps = []

    def go_on(text: str, share: float | None) -> None:
        commits = checkpoint / "commits"
        if not steps:
            write_events(folder, "1", 10, 13)
        elif len(steps) == 1 and (commits / "1").exists():
            time.sleep(3)  # nothing to do
            changes = [("subscribe", 3, "temp < 5")]
            frame = spark.createDataFrame(changes, "change string, id long, predicate string")
            ts.update_index(ts.IndexRef.open(folder / "index"), frame)
            write_events(folder, "2", 0, 5)
        elif len(steps) == 2 and (commits / "2").exists():
            os.kill(os.getpid(), signal.SIGINT)
        else:
            return
        steps.append(time.monotonic())

    second = run_here(spark, folder, progress=go_on, **settings)
    assert [(number, n) for number, n, _ in second.batches] == [(1, 3), (2, 5)]
    assert second.busiest == [(3, 5), (1, 3)]
    assert (second.n_events, second.n_matches) == (8, 8)
    assert second.match_s == sum(took for *_, took in second.batches)
    assert second.match_s < second.total_s - 3
    assert (second.version, second.last_version) == (1, 2)
    assert "version 2, at first 1: 3 subscriptions" in second.lines()[0]


# ── what is wrong ──


def test_what_spark_refuses_is_said_in_one_line(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(PipelineError, match=r"Path does not exist: [^\n]*/nowhere\.?$"):
        run_here(
            spark,
            folder,
            events__path=folder / "nowhere",
            subscriptions__format="workload",
            subscriptions__path="mix-default",
        )
    assert ts.IndexRef.open(folder / "index").version == 1  # before an index is built
    with pytest.raises(PipelineError, match=r"data source: nosuch[^\n]*$"):
        run_here(spark, folder, events__format="nosuch")
    with pytest.raises(PipelineError, match=r"name `wind` cannot be resolved[^\n]*$"):
        run_here(spark, folder, matches__select="wind AS key")
    # No other test has this index, so no worker has it in its cache.
    frame = spark.createDataFrame([(1, "temp != 12345")], "id int, predicate string")
    ts.build_index(frame, folder / "index")
    for path in (folder / "index" / "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(b"junk")
    with pytest.raises(PipelineError, match=r"^[^\n]* the object \w+ of the index is damaged"):
        run_here(spark, folder)
    with pytest.raises(PipelineError, match=r"^[^\n]* the object \w+ of the index is damaged"):
        run_here(spark, folder, events__stream="true", events__checkpoint=folder / "checkpoint")


def test_a_wrong_path_is_one_line_of_the_command(folder: Path) -> None:
    done = run("run", *flags(folder, events__path=folder / "nowhere"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tamis: [PATH_NOT_FOUND] Path does not exist")


def test_options_are_texts_numbers_and_booleans(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    options = "{ a = 1000, b = true, c = 0.5, d = 'x' }"
    file.write_text(EXAMPLE.replace("{ header = true }", options))
    config = read_config(file, {"events.options": "{ rows = 5 }"})
    assert config.subscriptions is not None
    assert config.subscriptions.options == {"a": "1000", "b": "true", "c": "0.5", "d": "x"}
    assert config.events.options == {"rows": "5"}


def test_a_workload_takes_numbers(spark: SparkSession, tmp_path: Path) -> None:
    report = run_here(
        spark,
        tmp_path,
        subscriptions__format="workload",
        subscriptions__path="mix-default",
        subscriptions__options="{ n_subscriptions = 1000 }",
        events__format="workload",
        events__path="mix-default",
        events__rows=50,
        events__schema="",
    )
    assert (report.n_subscriptions, report.n_events) == (1000, 50)


FULL = "[index]\npath = 'i'\n[events]\nid = 'event'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[index", "Expected"),
        ("[indexes]", "there is no section 'indexes'; there are subscriptions, index"),
        ("[index]\nfolder = 'x'", "index has no 'folder'; it has path, engine"),
        ("[index]\npath = 5", "index.path must be a text, not 5"),
        ("index = 5", "index must be a section"),
        ("[index]\nengine = 'auto'", "index.path must be given"),
        ("[events]\npath = 'x'", "index.path must be given"),
        (FULL, "events.path must be given, since its format is parquet"),
        (FULL + "path = 'e'", "matches.path must be given, since its format is parquet"),
        (FULL + "path = 'e'\noptions = 5", "events.options must be a table of options, not 5"),
        (FULL + "options = { a = [1] }", "events.options: a must be a text, a number, true or"),
        (FULL + "options = { a.b = 1 }", "a name with dots needs quotes"),
        (FULL + "format = 'rate'\n[matches]\nformat = 'noop'\nmode = 'add'", "mode must be over"),
        (
            FULL + "format = 'rate'\nstream = true\ncheckpoint = 'c'\n"
            "[matches]\nformat = 'noop'\nmode = 'append'",
            "matches.mode is for tables; a stream appends",
        ),
    ],
)
def test_what_a_file_says_wrongly_is_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=reason):
        read_config(file)


def test_the_example_has_every_setting() -> None:
    lines = EXAMPLE.replace("# ", "").splitlines()
    for section in fields(Config):
        begin = next(place for place, line in enumerate(lines) if line[1:].startswith(section.name))
        end = next((k for k in range(begin + 1, len(lines)) if lines[k][:1] == "["), len(lines))
        shown = {line.partition(" = ")[0] for line in lines[begin:end]}
        hint = get_type_hints(Config)[section.name]
        kind = next(iter(get_args(hint)), hint)  # a section or None is a section
        assert {field.name for field in fields(kind)} <= shown


def test_the_page_shows_a_file_that_can_be_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "spark.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    config = read_config(file, {"index.path": "alerts"})
    assert len(config.events.select) == len(config.matches.select) == 2


def test_a_stream_needs_a_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(EXAMPLE)
    with pytest.raises(ArgumentError, match=r"a stream needs events.checkpoint"):
        read_config(file, {"events.stream": "true"})
    config = read_config(file, {"events.stream": "true", "events.checkpoint": "here"})
    assert config.events.stream
    assert config.events.trigger == "available"


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(EXAMPLE)
    settings = {"events.position": "lon, lat", "index.shards": "3", "spark.conf": "a.b=1,c=2"}
    config = read_config(file, settings)
    assert config.events.position == ["lon", "lat"]
    assert config.index.shards == 3
    assert config.spark.conf == {"a.b": "1", "c": "2"}


def test_wrong_use_of_the_command_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["pipeline", "run"]) == 2
    assert "a file is needed" in capsys.readouterr().err
    assert main(["pipeline", "run", "--set", "path"]) == 2
    assert "--set must be like" in capsys.readouterr().err
    (tmp_path / "there.toml").touch()
    assert main(["pipeline", "init", str(tmp_path / "there.toml")]) == 2
    assert "exists already" in capsys.readouterr().err
