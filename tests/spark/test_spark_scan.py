"""The other ways in: the data source that reads Parquet itself, and SQL."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import tamis.spark as ts


@pytest.fixture
def alerts(spark: SparkSession, index: str) -> ts.IndexRef:
    return ts.build_index(
        spark.createDataFrame([(1, "temp > 1")], "id int, predicate string"), index
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the option 'index'"),
        ({"index": "INDEX"}, "needs the option 'id'"),
        ({"index": "INDEX", "id": "event", "colour": "red"}, "no option 'colour'"),
        ({"index": "INDEX", "id": "gone"}, "there is no 'gone'"),
        ({"index": "INDEX", "id": "event", "version": "new"}, "version must be an integer"),
        ({"index": "INDEX", "id": "event", "position": "temp"}, "must be two names"),
        ({"index": "/nowhere", "id": "event"}, "there is no index"),
    ],
)
def test_wrong_options_are_an_error_when_the_table_is_loaded(
    spark: SparkSession, alerts: ts.IndexRef, tmp_path: Path, options: dict, text: str
) -> None:
    pq.write_table(pa.table({"event": [1], "temp": [5]}), tmp_path / "events.parquet")
    given = {k: alerts.path if v == "INDEX" else v for k, v in options.items()}
    with pytest.raises(Exception, match=text):
        spark.read.format("tamis").options(**given).load(str(tmp_path / "events.parquet"))


def load(spark: SparkSession, ref: ts.IndexRef, path: Path) -> DataFrame:
    return spark.read.format("tamis").options(index=ref.path, id="event").load(str(path))


def test_files_with_other_columns_or_none_are_named(
    spark: SparkSession, alerts: ts.IndexRef, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    with pytest.raises(Exception, match="there are no events"):
        load(spark, alerts, folder)
    folder.mkdir()
    pq.write_table(pa.table({"event": [1], "temp": [5]}), folder / "a.parquet")
    pq.write_table(pa.table({"event": [1], "temp": ["5"]}), folder / "b.parquet")
    with pytest.raises(Exception, match=r"b.parquet must have the columns of .*a.parquet"):
        load(spark, alerts, folder)
    (folder / "b.parquet").write_bytes(b"no parquet")
    with pytest.raises(Exception, match=r"b.parquet: cannot be read as Parquet"):
        load(spark, alerts, folder)


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("keep", ["", "seen", "seen.x"])
def test_maps_are_matched_and_kept_however_their_names_are_written(
    spark: SparkSession, alerts: ts.IndexRef, tmp_path: Path, use_dictionary: bool, keep: str
) -> None:
    numbers = pa.map_(pa.string(), pa.int64())
    maps = [[("temp", 2), ("a", 1)], None, [], [("temp", 0)], [("b", None), ("temp", 3)]]
    table = pa.table(
        {
            "event": pa.array(range(5)),
            "seen": pa.array(maps, numbers),
            "seen.x": pa.array(maps[::-1], numbers),
        }
    )
    path = tmp_path / "events.parquet"
    pq.write_table(table, path, use_dictionary=use_dictionary, row_group_size=2)
    options = {"index": alerts.path, "id": "event", "attrs": "seen", "keep": keep}
    rows = spark.read.format("tamis").options(**options).load(str(path)).collect()
    assert sorted((row.event, row.subscription) for row in rows) == [(0, 1), (4, 1)]
    if keep:
        kept = maps if keep == "seen" else maps[::-1]
        assert all(row[keep] == dict(kept[row.event] or ()) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("TABLE(seen), 'INDEX'", "needs id"),
        ("TABLE(seen), 'INDEX', id => 'gone'", "there is no 'gone'"),
        ("TABLE(seen), 'INDEX', id => 'event', colour => 'red'", "no argument colour"),
        ("1, 'INDEX', id => 'event'", "must be a table"),
    ],
)
def test_wrong_arguments_of_the_table_function_are_named(
    spark: SparkSession, alerts: ts.IndexRef, arguments: str, text: str
) -> None:
    spark.createDataFrame([(1, 5)], "event int, temp int").createOrReplaceTempView("seen")
    with pytest.raises(Exception, match=text):
        spark.sql(f"SELECT * FROM tamis_match({arguments.replace('INDEX', alerts.path)})")
