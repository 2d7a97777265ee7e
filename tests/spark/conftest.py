"""One Spark session for the whole run: starting one takes 10 to 20 seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tamis.spark as ts

CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.default.parallelism": 2,
    # So that a small table comes in several batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": 1000,
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["TAMIS_SPARK_CACHE"] = str(scratch / "shards")
    session = ts.session("tests", "local[2]", conf=CONF, scratch=scratch)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    del os.environ["TAMIS_SPARK_CACHE"]


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Where an index may be made."""
    return str(tmp_path / "index")
