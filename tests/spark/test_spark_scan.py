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


HIDDEN = ("_temporary/0/part-0.parquet", "_delta_log/1.parquet", ".old/a.parquet", "_note.parquet")


def test_what_spark_passes_over_is_not_read(
    spark: SparkSession, alerts: ts.IndexRef, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    for number, name in enumerate(("a.parquet", *HIDDEN)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"event": [number], "temp": [5]}), folder / name)
    (folder / "empty.parquet").touch()
    expected = spark.read.parquet(str(folder)).transform(ts.match(alerts, id="event"))
    found = load(spark, alerts, folder)
    assert set(found.collect()) == set(expected.collect()) == {(0, 1)}


@pytest.mark.parametrize(
    ("texts", "predicate"),
    [
        (["2026-11-15", "2026-11-16"], "key > TIMESTAMP '2026-11-15T12:00:00Z'"),
        (["7", "012"], "key = 12"),
        (["5", "3000000000"], "key > 2500000000"),
        (["1", "-2.5e-1"], "key < 0"),
        (["north", "a b/c:ü"], "key = 'a b/c:ü'"),
        (["x", "1e5"], "key = '1e5'"),
        (["x", None], "key IS NULL"),
    ],
)
def test_columns_of_folders_are_those_that_spark_finds(
    spark: SparkSession, index: str, tmp_path: Path, texts: list[str | None], predicate: str
) -> None:
    subscriptions = spark.createDataFrame([(1, predicate)], "id int, predicate string")
    ref = ts.build_index(subscriptions, index, mode="failfast")
    folder = str(tmp_path / "events")
    frame = spark.createDataFrame(list(enumerate(texts)), "event int, key string")
    frame.write.partitionBy("key").parquet(folder)
    found = spark.read.format("tamis").options(index=ref.path, id="event", keep="key").load(folder)
    events = spark.read.parquet(folder)
    expected = events.transform(ts.match(ref, id="event", keep=["key"]))
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert found.collect() == expected.collect()
    assert [row.event for row in found.collect()] == [1]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["old/a.parquet"], "the folder old must be called column=value"),
        (["day=1/a.parquet", "a.parquet"], "must lie in folders for the columns of"),
        (["day=1/a.parquet", "day=1/hour=2/a.parquet"], "must lie in folders for the columns of"),
        (["at=2026-11-15 10%3A00%3A00/a.parquet"], "at=… hold decimals or times"),
        (["n=99999999999999999999/a.parquet"], "n=… hold decimals or times"),
    ],
)
def test_folders_that_are_not_read_are_named(
    spark: SparkSession, alerts: ts.IndexRef, tmp_path: Path, names: list[str], text: str
) -> None:
    for name in names:
        (tmp_path / "events" / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"event": [1], "temp": [5]}), tmp_path / "events" / name)
    with pytest.raises(Exception, match=text):
        load(spark, alerts, tmp_path / "events")


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("keep", ["", "seen", "seen.x"])
@pytest.mark.parametrize("is_first", [True, False])
def test_maps_are_matched_and_kept_however_their_names_are_written(
    spark: SparkSession,
    alerts: ts.IndexRef,
    tmp_path: Path,
    use_dictionary: bool,
    keep: str,
    is_first: bool,
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
    if not is_first:
        table = table.select(["event", "seen.x", "seen"])
    pq.write_table(table, path, use_dictionary=use_dictionary, row_group_size=2)
    options = {"index": alerts.path, "id": "event", "attrs": "seen", "keep": keep}
    rows = spark.read.format("tamis").options(**options).load(str(path)).collect()
    assert sorted((row.event, row.subscription) for row in rows) == [(0, 1), (4, 1)]
    if keep:
        kept = maps if keep == "seen" else maps[::-1]
        assert all(row[keep] == dict(kept[row.event] or ()) for row in rows)


@pytest.mark.parametrize("rows_per_task", [1, 40, 100, 1000])
@pytest.mark.parametrize("max_mapped_bytes", [None, 1 << 30])
def test_tasks_take_row_groups_of_several_files_with_names_of_their_own(
    spark: SparkSession,
    alerts: ts.IndexRef,
    tmp_path: Path,
    rows_per_task: int,
    max_mapped_bytes: int | None,
) -> None:
    expected = set()
    for day in range(3):
        folder = tmp_path / "events" / f"day={day}"
        folder.mkdir(parents=True)
        for part in range(2):
            first = 1000 * day + 100 * part
            rows = range(first, first + 50)
            # From the middle on names are so many that the file gives up its dictionary.
            maps = [[(f"name {n}" if n % 50 > 25 else "a", 1), ("temp", n % 3)] for n in rows]
            expected |= {(n, day) for n in rows if n % 3 > 1}
            table = pa.table(
                {
                    "event": pa.array(rows),
                    "seen": pa.array(maps, pa.map_(pa.string(), pa.int64())),
                }
            )
            pq.write_table(
                table,
                folder / f"{part}.parquet",
                row_group_size=40,
                data_page_size=50,
                write_batch_size=5,
                dictionary_pagesize_limit=50,
            )
    options = {"index": alerts.path, "id": "event", "attrs": "seen", "keep": "day"}
    if max_mapped_bytes is not None:
        options["max_mapped_bytes"] = str(max_mapped_bytes)
    matches = (
        spark.read.format("tamis")
        .options(rows_per_task=rows_per_task, **options)
        .load(str(tmp_path / "events"))
    )
    # Row groups of 40 and 10 rows, six times.
    assert matches.rdd.getNumPartitions() == {1: 12, 40: 7, 100: 3, 1000: 1}[rows_per_task]
    found = [(row.event, row.day) for row in matches.collect()]
    assert len(found) == len(expected)
    assert set(found) == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("TABLE(seen), 'INDEX'", "has none called id; there are event, temp"),
        ("TABLE(seen), 'INDEX', id => 'event', version => 7", "has no version 7"),
        ("TABLE(seen), 'INDEX', id => 'event', version => 1.5", "must be a text or an integer"),
        ("TABLE(seen), 'INDEX', id => 'event', max_mapped_bytes => 0", "an integer from 1 on"),
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


def test_the_table_function_takes_a_table_and_an_index_alone(
    spark: SparkSession, alerts: ts.IndexRef
) -> None:
    spark.createDataFrame([(7, 5), (8, 0)], "id int, temp int").createOrReplaceTempView("numbered")
    query = f"SELECT id, subscription FROM tamis_match(TABLE(numbered), '{alerts.path}')"
    assert [tuple(row) for row in spark.sql(query).collect()] == [(7, 1)]


def test_the_table_function_sweeps_and_takes_an_old_version(
    spark: SparkSession, index: str
) -> None:
    frame = spark.range(20).selectExpr("id", "'temp = ' || id AS predicate")
    first = ts.build_index(frame, index, n_shards=3)
    ts.build_index(frame.limit(1), index)
    spark.createDataFrame([(1, 5)], "id int, temp int").createOrReplaceTempView("numbered")
    limit = max(shard.n_bytes for shard in first.manifest.shards)
    words = f"version => 1, max_mapped_bytes => {limit}"
    found = spark.sql(f"SELECT * FROM tamis_match(TABLE(numbered), '{index}', {words})")
    assert [tuple(row) for row in found.collect()] == [(1, 5)]
