"""Matches on Spark are those of the engine naive outside of it, in every form."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from answers import expected_pairs, pairs_of
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tamis.spark as ts
from tamis import ArgumentError, ArgumentTypeError, Matcher, workloads
from tamis.spark import workloads as tables

N_EVENTS = 1500


@pytest.fixture(scope="module")
def alerts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ts.IndexRef:
    rows = [
        ("heat", "area = 'north' AND temp > 30", "alice"),
        ("wind", "data.wind >= 20", "alice"),
        ("late", "seen > TIMESTAMP '2026-11-15T10:00:00Z'", "bob"),
        ("near", "NEAR(0, 0, 5)", "bob"),
        ("all", "TRUE", "carol"),
    ]
    frame = spark.createDataFrame(rows, "id string, predicate string, subscriber string")
    return ts.build_index(frame, tmp_path_factory.mktemp("alerts") / "index", n_shards=2)


def test_ids_are_strings_where_the_subscriptions_have_strings(
    spark: SparkSession, alerts: ts.IndexRef
) -> None:
    events = spark.createDataFrame([(7, "north", 31.5)], "event int, area string, temp double")
    matches = events.transform(ts.match(alerts, id="event", keep=["area"]))
    assert matches.schema.simpleString() == "struct<event:int,area:string,subscription:string>"
    assert set(map(tuple, matches.collect())) == {(7, "north", "heat"), (7, "north", "all")}


def test_fields_of_structs_times_and_positions_are_attributes(
    spark: SparkSession, alerts: ts.IndexRef
) -> None:
    when = datetime.datetime(2026, 11, 15, 11, tzinfo=datetime.UTC)
    events = spark.createDataFrame(
        [(1, (25,), when, 3.0, 4.0), (2, (3,), None, 3.5, 4.0)],
        "event int, data struct<wind: int>, at timestamp, x double, y double",
    )
    matches = events.transform(
        ts.match(
            alerts,
            id="event",
            columns={"data.wind": "data.wind", "seen": "at"},
            position=("x", "y"),
            output="list",
        )
    )
    found = {event: set(ids) for event, ids in matches.collect()}
    assert found == {1: {"wind", "late", "near", "all"}, 2: {"all"}}


def test_subscribers_of_several_shards_come_once(spark: SparkSession, alerts: ts.IndexRef) -> None:
    events = spark.createDataFrame(
        [(1, "north", 35, 25)], "event int, area string, temp int, wind int"
    )
    counted = events.transform(
        ts.match(
            alerts,
            id="event",
            columns={"area": "area", "temp": "temp", "data.wind": "wind"},
            deliver="subscribers",
            output="count",
        )
    )
    assert counted.collect()[0]["n_matches"] == 2  # alice for two reasons, and carol


@pytest.mark.parametrize("n_shards", [1, 3])
def test_thousands_of_matches_of_an_event_are_as_many_pairs(
    spark: SparkSession, tmp_path: Path, n_shards: int
) -> None:
    """Pairs come from Python in lists, which are cut at 4,096."""
    n = 4096 * 2 + 5
    subscriptions = spark.range(n).select("id", F.expr("'size >= ' || id").alias("predicate"))
    ref = ts.build_index(subscriptions, tmp_path / "index", n_shards=n_shards)
    sizes = [-1, 0, 4095, 4096, 8191, 8192, n, 10, -5]
    events = spark.createDataFrame([(f"e{at}", size) for at, size in enumerate(sizes)])
    events = events.toDF("the `event.id", "size").withColumn("Subscription", F.lit(1))
    words = {"id": "the `event.id", "columns": ["size"], "keep": ["Subscription"]}
    matched = events.transform(ts.match(ref, **words))
    assert matched.columns == ["the `event.id", "Subscription", "subscription"]
    pairs = [(event, id) for event, _, id in matched.collect()]
    expected = {(f"e{at}", id) for at, size in enumerate(sizes) for id in range(min(size + 1, n))}
    assert len(pairs) == len(expected)
    assert set(pairs) == expected


def test_attributes_that_nobody_mentions_do_not_reach_the_workers(
    spark: SparkSession, alerts: ts.IndexRef
) -> None:
    events = spark.createDataFrame([(1, "north", "x")], "event int, area string, other string")
    plan = events.transform(ts.match(alerts, id="event"))._jdf.queryExecution().toString()
    assert "e0" in plan
    assert "e1" not in plan


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"id": "number"}, ArgumentError, "no 'number'; there are event, area"),
        ({"id": "event", "keep": ["gone"]}, ArgumentError, "no 'gone'"),
        ({"id": "event", "columns": ["heat"]}, ArgumentError, "no 'heat'"),
        ({"id": "event", "columns": {"temp": "area"}}, ArgumentTypeError, "must hold numbers"),
        ({"id": "event", "columns": {"temp": "price"}}, ArgumentTypeError, "cast it to double"),
        ({"id": "event", "attrs": "area"}, ArgumentTypeError, "must be a map"),
        ({"id": "event", "position": ("area", "temp")}, ArgumentTypeError, "position: column area"),
        ({"id": "event", "output": "rows"}, ArgumentError, "output must be"),
        ({"id": "event", "max_mapped_bytes": 0}, ArgumentError, "max_mapped_bytes must be"),
        ({"id": "subscription"}, ArgumentError, "rename that of the events"),
    ],
)
def test_wrong_columns_are_an_error_before_a_task_starts(
    spark: SparkSession, alerts: ts.IndexRef, arguments: dict, error: type, text: str
) -> None:
    events = spark.createDataFrame(
        [], "event int, area string, temp double, price decimal(9,2), subscription int"
    )
    with pytest.raises(error, match=text):
        events.transform(ts.match(alerts, **arguments))


def test_a_position_is_asked_for_where_every_subscription_needs_one(
    spark: SparkSession, index: str
) -> None:
    frame = spark.createDataFrame([(1, "NEAR(0, 0, 1)")], "id int, predicate string")
    ref = ts.build_index(frame, index)
    events = spark.createDataFrame([(1, 0.5, 0.5)], "event int, x double, y double")
    with pytest.raises(ArgumentError, match="position must name the columns"):
        events.transform(ts.match(ref, id="event"))
    matches = events.transform(ts.match(ref, id="event", position=("x", "y")))
    assert [tuple(row) for row in matches.collect()] == [(1, 1)]


def test_an_index_that_may_not_be_mapped_at_once_is_swept(spark: SparkSession, index: str) -> None:
    workload = workloads.get("hem-default", n_subscriptions=2000)
    ref = ts.build_index(tables.subscriptions(spark, workload), index, n_shards=4)
    largest = max(shard.n_bytes for shard in ref.manifest.shards)
    events = tables.events(spark, workload, N_EVENTS, n_partitions=2)
    matches = events.transform(ts.match(ref, id="event", max_mapped_bytes=largest))
    assert pairs_of(matches, "pairs") == expected_pairs(workload, N_EVENTS)


def test_workers_match_on_one_thread(spark: SparkSession, alerts: ts.IndexRef) -> None:
    def threads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tamis.spark.cache import open_shard

        for _ in batches:
            shard = open_shard(alerts.store, alerts.manifest, alerts.manifest.shards[0])
            assert isinstance(shard.matcher, Matcher)
            yield pa.record_batch([[shard.matcher.stats()["threads"]]], names=["n"])

    assert spark.range(1, numPartitions=1).mapInArrow(threads, "n long").collect()[0]["n"] == 1


def test_rows_of_a_workload_do_not_depend_on_partitions(spark: SparkSession) -> None:
    workload = workloads.get("pcm-default", n_filters=700)
    expected = workload.subscriptions().read_all().to_pylist()
    for n_partitions in (1, 5):
        frame = tables.subscriptions(spark, "pcm-default", n_filters=700, n_partitions=n_partitions)
        assert frame.rdd.getNumPartitions() == n_partitions
        assert [row.asDict() for row in frame.orderBy("id").collect()] == expected
    numbered = tables.events(spark, workload, 50, n_partitions=3).orderBy("event")
    maps = [row["numbers"] for row in numbered.select(F.col("numbers")).collect()]
    assert maps == [dict(row["numbers"]) for row in workload.events(50).read_all().to_pylist()]
