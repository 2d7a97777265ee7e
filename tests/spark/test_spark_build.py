"""Building an index: what is rejected, what is written, what fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tamis.spark as ts
from tamis import ArgumentError, ArgumentTypeError, BatchError, StorageError

ROWS = [
    (1, "temp > 30"),
    (2, "temp >> 30"),
    (3, None),
    (None, "temp > 1"),
    (4, "temp > 2"),
    (4, "temp > 3"),
    (5, "temp < 0 OR"),
]


def test_bad_rows_are_in_the_rejected_table(spark: SparkSession, index: str) -> None:
    frame = spark.createDataFrame(ROWS, "id int, predicate string")
    ref = ts.build_index(frame, index, n_shards=2)
    assert ref.n_subscriptions == 1
    assert ref.n_rejected == 6
    rejected = {
        (row["id"], row["predicate"]): row["reason"] for row in ref.rejected(spark).collect()
    }
    assert set(rejected) == {
        (None if id is None else str(id), text) for id, text in ROWS if id != 1
    }
    assert "expected a value" in rejected["2", "temp >> 30"]
    assert rejected["3", None] == "column predicate must have no nulls"
    assert rejected["4", "temp > 2"] == "the id must stand once in the table"


def test_rejected_rows_have_their_other_columns_and_the_place_of_the_error(
    spark: SparkSession, index: str
) -> None:
    rows = [(1, "temp >> 30", 7), (None, "temp > 1", 8), (2, None, 9), (3, "temp > 1", None)]
    frame = spark.createDataFrame(rows, "id int, predicate string, subscriber int")
    ref = ts.build_index(frame, index)
    rejected = {row["subscriber"]: row for row in ref.rejected(spark).collect()}
    assert set(rejected) == {"7", "8", "9", None}
    assert (rejected["7"]["id"], rejected["7"]["offset"]) == ("1", 6)
    assert (rejected["8"]["id"], rejected["8"]["predicate"]) == (None, "temp > 1")
    assert rejected["9"]["offset"] is None
    changes = [("move", 9, None, 1.0, 2.0), ("forget", None, "TRUE", None, 3.0)]
    schema = "change string, id int, predicate string, x double, y double"
    second = ts.update_index(ref, spark.createDataFrame(changes, schema))
    found = {row["reason"]: row for row in second.rejected(spark).collect()}
    moved = found["no subscription has this id"]
    assert (moved["change"], moved["x"], moved["y"]) == ("move", 1.0, 2.0)
    nobody = found["column id must have no nulls"]
    assert (nobody["change"], nobody["predicate"], nobody["y"]) == ("forget", "TRUE", 3.0)


def test_failfast_names_the_first_bad_rows_and_makes_no_version(
    spark: SparkSession, index: str
) -> None:
    frame = spark.createDataFrame(ROWS, "id int, predicate string")
    with pytest.raises(BatchError, match="6 rows cannot be taken") as caught:
        ts.build_index(frame, index, mode="failfast")
    assert "id 2: expected a value" in str(caught.value)
    assert "no id, predicate temp > 1: column id must have no nulls" in str(caught.value)
    with pytest.raises(StorageError, match="there is no index"):
        ts.IndexRef.open(index)


def test_building_again_makes_the_next_version_and_keeps_the_old_one(
    spark: SparkSession, index: str
) -> None:
    first = ts.build_index(spark.createDataFrame(ROWS[:1], "id int, predicate string"), index)
    second = ts.build_index(spark.createDataFrame(ROWS[4:5], "id int, predicate string"), index)
    assert (first.version, second.version) == (1, 2)
    assert ts.IndexRef.open(index) == second == first.newest()
    assert ts.IndexRef.open(index, 1) == first
    events = spark.createDataFrame([(1, 40)], "event int, temp int")
    for ref, id in ((first, 1), (second, 4)):
        assert [tuple(r) for r in events.transform(ts.match(ref, id="event")).collect()] == [
            (1, id)
        ]


def test_an_index_that_was_built_anew_at_its_path_is_not_taken_for_the_old_one(
    spark: SparkSession, index: str
) -> None:
    first = ts.build_index(spark.createDataFrame(ROWS[:1], "id int, predicate string"), index)
    assert first.n_subscriptions == 1
    shutil.rmtree(index)
    rows = [(1, "temp > 1"), (2, "temp > 2")]
    second = ts.build_index(spark.createDataFrame(rows, "id int, predicate string"), index)
    assert second.version == first.version == 1
    assert second != first
    assert second.n_subscriptions == 2
    events = spark.createDataFrame([(1, 5)], "event int, temp int")
    assert events.transform(ts.match(second, id="event")).count() == 2
    with pytest.raises(Exception, match="version 1 is another one now"):
        events.transform(ts.match(first, id="event")).collect()


def test_an_index_of_nothing_matches_nothing(spark: SparkSession, index: str) -> None:
    ref = ts.build_index(spark.createDataFrame([], "id string, predicate string"), index)
    events = spark.createDataFrame([(1, 40)], "event int, temp int")
    assert events.transform(ts.match(ref, id="event")).collect() == []
    counted = events.transform(ts.match(ref, id="event", output="count")).collect()
    assert [tuple(row) for row in counted] == [(1, 0)]


def test_equal_shards_are_equal_objects(spark: SparkSession, index: str) -> None:
    frame = spark.createDataFrame([(1, "temp > 1"), (2, "temp > 2")], "id int, predicate string")
    # What "auto" takes for two filters is a matter of nanoseconds.
    first, second = (ts.build_index(frame.coalesce(1), index, engine="tuple-key") for _ in range(2))
    assert first.manifest.shards[0].key == second.manifest.shards[0].key


def test_an_index_that_was_damaged_is_whole_when_it_is_built_again(
    spark: SparkSession, index: str
) -> None:
    rows = [(1, "temp > 1.5"), (2, "temp > 2.5")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    first = ts.build_index(frame.coalesce(1), index, engine="tuple-key")
    for each in first.store.objects():
        Path(each.path).write_bytes(b"damaged")
    second = ts.build_index(frame.coalesce(1), index, engine="tuple-key")
    events = spark.createDataFrame([(1, 40)], "event int, temp int")
    for ref in (second, first):
        found = events.transform(ts.match(ref, id="event")).collect()
        assert sorted(map(tuple, found)) == [(1, 1), (1, 2)]


def test_the_path_of_an_index_may_be_a_uri(spark: SparkSession, tmp_path: Path) -> None:
    uri = (tmp_path / "the index").as_uri()
    assert uri.startswith("file:///")
    frame = spark.createDataFrame([(1, "temp > 30")], "id int, predicate string")
    ref = ts.build_index(frame, uri)
    changes = spark.createDataFrame(
        [("subscribe", 2, "temp > 20")], "change string, id int, predicate string"
    )
    second = ts.update_index(ref, changes)
    assert ts.IndexRef.open(uri) == second
    assert ts.IndexRef.open(tmp_path / "the index").version == 2  # it is the same place
    events = spark.createDataFrame([(1, 40), (2, 25)], "event int, temp int")
    found = events.transform(ts.match(second, id="event")).collect()
    assert sorted(map(tuple, found)) == [(1, 1), (1, 2), (2, 2)]
    events.write.parquet((tmp_path / "events").as_uri())
    counted = spark.read.format("tamis").options(index=uri, id="event", output="count")
    rows = counted.load((tmp_path / "events").as_uri()).collect()
    assert sorted(map(tuple, rows)) == [(1, 2), (2, 1)]
    assert ts.vacuum(uri, keep=1).versions == [1]


def test_nothing_stays_persisted_when_an_index_is_built(spark: SparkSession, index: str) -> None:
    def n_persisted() -> int:
        return int(spark.sparkContext._jsc.getPersistentRDDs().size())

    before = n_persisted()
    frame = spark.createDataFrame(
        [(k, f"temp > {k}") for k in range(20)], "id int, predicate string"
    )
    ts.build_index(frame, index, partition_by="temp", n_shards=3, mode="failfast")
    assert n_persisted() == before
    bad = frame.union(spark.createDataFrame([(99, "temp >")], frame.schema))
    with pytest.raises(BatchError):
        ts.build_index(bad, index, partition_by="temp", n_shards=3, mode="failfast")
    assert n_persisted() == before


@pytest.mark.parametrize(
    ("schema", "arguments", "error", "text"),
    [
        ("id double, predicate string", {}, ArgumentTypeError, "integers or strings"),
        ("id int, predicate int", {}, ArgumentTypeError, "must hold strings"),
        ("id int, text string", {}, ArgumentError, "not 'predicate'; there are id, text"),
        (
            "id int, predicate string, subscriber string",
            {},
            ArgumentTypeError,
            "must be of one type",
        ),
        ("id int, predicate string", {"engine": "quick"}, ArgumentError, "engine"),
        ("id int, predicate string", {"space": "moon"}, ArgumentError, "space"),
        ("id int, predicate string", {"mode": "lenient"}, ArgumentError, "mode must be"),
        ("id int, predicate string", {"n_shards": 0}, ArgumentError, "n_shards must be"),
    ],
)
def test_what_cannot_be_built_is_an_error_on_the_driver(
    spark: SparkSession, index: str, schema: str, arguments: dict, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        ts.build_index(spark.createDataFrame([], schema), index, **arguments)


def test_only_a_frame_of_spark_can_be_built_or_matched(spark: SparkSession, index: str) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a DataFrame of Spark, not a dict"):
        ts.build_index({"id": [1]}, index)
    with pytest.raises(ArgumentTypeError, match="must be an IndexRef, not a str"):
        ts.match(index, id="event")


def test_a_uri_that_arrow_does_not_know_is_an_error(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "id int, predicate string")
    with pytest.raises(ArgumentError, match="path must be a path or a URI"):
        ts.build_index(frame, "gopher://index")


def test_tamis_is_imported_without_spark() -> None:
    check = "import sys, tamis, tamis.cli; tamis.cli._parser(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_a_missing_pyspark_names_the_extra() -> None:
    check = "import sys; sys.modules['pyspark'] = None; import tamis.spark"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert 'pip install "tamis[spark]"' in done.stderr
