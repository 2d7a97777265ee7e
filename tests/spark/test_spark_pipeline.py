"""`tamis pipeline`: what it reads, what it writes, what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tamis import ArgumentError
from tamis.cli import main
from tamis.spark.pipeline import EXAMPLE, read_config

STREAM = """
[index]
path = "{folder}/index"
[events]
format = "json"
path = "{folder}/events"
schema = "event int, temp int"
id = "event"
stream = true
trigger = "1 second"
checkpoint = "{folder}/checkpoint"
[matches]
path = "{folder}/matches"
[spark]
master = "local[1]"
conf = {{ "spark.driver.memory" = "512m" }}
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tamis.cli", "pipeline", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


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


def test_ctrl_c_ends_a_stream_between_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    import tamis.spark as ts

    frame = spark.createDataFrame([(1, "temp > 30")], "id int, predicate string")
    ts.build_index(frame, tmp_path / "index")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0.json").write_text('{"event": 1, "temp": 35}\n')
    file = tmp_path / "pipeline.toml"
    file.write_text(STREAM.format(folder=tmp_path))
    command = [sys.executable, "-m", "tamis.cli", "pipeline", "run", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    written = tmp_path / "checkpoint" / "commits" / "0"
    for _ in range(6000):
        if written.exists() or process.poll() is not None:
            break
        time.sleep(0.1)  # Spark tells by this file, and in no other way
    os.kill(process.pid, signal.SIGINT)
    shown, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert "batches    1" in shown
    assert [tuple(r)[:2] for r in spark.read.parquet(str(tmp_path / "matches")).collect()] == [
        (1, 1)
    ]


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
    ],
)
def test_what_a_file_says_wrongly_is_named(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=reason):
        read_config(file)


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
