"""Subscriptions spread by place or value: the same answers, from fewer shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from answers import attribute_arguments, expected_pairs, pairs_of
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tamis.spark as ts
from tamis import ArgumentError, Matcher, parse, workloads
from tamis.spark import workloads as tables
from tamis.spark.manifest import Summary
from tamis.spark.partitioning import key_of
from tamis.spark.routing import may_match

N_EVENTS = 1000


@pytest.mark.parametrize("key", ["clcb-default", "cities"])
def test_regions_give_what_naive_gives(spark: SparkSession, index: str, key: str) -> None:
    workload = workloads.get(key, n_subscriptions=400)
    ref = ts.build_index(
        tables.subscriptions(spark, workload),
        index,
        n_shards=5,
        partition_by="region",
        space=workload.space,
        mode="failfast",
    )
    sizes = [shard.n_subscriptions for shard in ref.manifest.shards]
    assert sum(sizes) == 400
    assert max(sizes[1:]) < 2.5 * min(sizes[1:])
    events = tables.events(spark, workload, N_EVENTS, n_partitions=2)
    expected = {
        deliver: expected_pairs(workload, N_EVENTS, deliver)
        for deliver in ("subscriptions", "subscribers")
    }
    limit = max(shard.n_bytes for shard in ref.manifest.shards)
    for route, deliver in (("never", "subscribers"), ("always", "subscriptions")):
        arguments = attribute_arguments(workload)
        matches = events.transform(
            ts.match(
                ref, id="event", deliver=deliver, route=route, max_mapped_bytes=limit, **arguments
            )
        )
        assert pairs_of(matches, "pairs") == expected[deliver]


def test_an_attribute_parts_subscriptions_and_leaves_events_out(
    spark: SparkSession, index: str
) -> None:
    rows = [(k, f"price BETWEEN {k} AND {k + 2}") for k in range(90)] + [(90, "EXISTS price")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    ref = ts.build_index(frame, index, n_shards=4, partition_by="price", mode="failfast")
    events = pa.record_batch({"price": pa.array([5.0, 50.5, 88.0, None])})
    seen = [may_match(shard.summary, events, None, "plane") for shard in ref.manifest.shards]
    assert [0 if rows is None else len(rows) for rows in seen] == [3, 1, 1, 1]
    frame = spark.createDataFrame([(1, 5.0), (2, 50.5)], "event int, price double")
    matches = frame.transform(ts.match(ref, id="event", route="always"))
    expected = {(1, k) for k in (3, 4, 5, 90)} | {(2, k) for k in (49, 50, 90)}
    assert pairs_of(matches, "pairs") == expected


def test_one_place_where_everybody_is_does_not_make_one_shard(
    spark: SparkSession, index: str
) -> None:
    frame = spark.range(600).selectExpr("id", "'NEAR(1, 1, 2) AND a = ' || id % 3 AS predicate")
    ref = ts.build_index(frame, index, n_shards=5, partition_by="region", mode="failfast")
    sizes = [shard.n_subscriptions for shard in ref.manifest.shards]
    assert sizes[0] == 0
    assert min(sizes[1:]) > 100
    events = spark.range(400).select(
        F.col("id").alias("event"),
        F.lit(1).alias("a"),
        F.lit(1.0).alias("x"),
        F.lit(1.0).alias("y"),
    )
    routed = events.transform(
        ts.match(ref, id="event", position=("x", "y"), route="always", output="count")
    )
    per_task = routed.groupBy(F.spark_partition_id()).count().collect()
    assert len(per_task) >= 4
    assert {row["n_matches"] for row in routed.collect()} == {200}


def test_updates_move_subscriptions_between_regions(spark: SparkSession, index: str) -> None:
    frame = spark.range(40).selectExpr("id", "'NEAR(' || id || ', 0, 0.5)' AS predicate")
    ref = ts.build_index(frame, index, n_shards=4, partition_by="region", mode="failfast")
    changes = [
        ("subscribe", 1, "NEAR(39, 0, 0.5)", None, None),  # from one end to the other
        ("subscribe", 2, "NEAR(", None, None),
        ("subscribe", 3, "TRUE", None, None),
        ("unsubscribe", 39, None, None, None),
        ("unsubscribe", 99, None, None, None),
        ("move", 20, None, 0.0, 0.0),
        ("subscribe", 50, "NEAR(7, 0, 0.5)", None, None),
        ("subscribe", 50, "NEAR(8, 0, 0.5)", None, None),
    ]
    schema = "change string, id long, predicate string, x double, y double"
    second = ts.update_index(ref, spark.createDataFrame(changes, schema))
    reasons = {row["id"]: row["reason"] for row in second.rejected(spark).collect()}
    assert set(reasons) == {"2", "99", "50"}
    assert second.n_subscriptions == 39
    events = spark.range(40).selectExpr("id AS event", "double(id) AS x", "0D AS y")
    matches = events.transform(ts.match(second, id="event", position=("x", "y")))
    expected = {(k, k) for k in range(40) if k not in (1, 3, 20, 39)}
    expected |= {(39, 1), (0, 20)} | {(k, 3) for k in range(40)}
    assert pairs_of(matches, "pairs") == expected


def test_routing_needs_something_to_route_by(spark: SparkSession, index: str) -> None:
    frame = spark.createDataFrame([(1, "a = 1")], "id int, predicate string")
    ref = ts.build_index(frame, index)
    events = spark.createDataFrame([(1, 1)], "event int, a int")
    with pytest.raises(ArgumentError, match="needs an index that was built with partition_by"):
        events.transform(ts.match(ref, id="event", route="always"))
    with pytest.raises(ArgumentError, match="route must be"):
        ts.match(ref, id="event", route="sometimes")


@pytest.mark.parametrize(
    ("text", "by", "key"),
    [
        ("NEAR(1, 2, 3) AND a = 1", "region", (1, 2)),
        ("NEAR(1, 2, 3) OR a = 1", "region", None),
        ("NEAR(0, 0, 1) OR NEAR(4, 2, 1)", "region", (2, 1)),
        ("NOT NEAR(1, 2, 3)", "region", None),
        ("a BETWEEN 2 AND 4", "a", (3, 0)),
        ("a IN (2, 8) AND b > 1", "a", (5, 0)),
        ("a > 2 AND a < 4", "a", (3, 0)),
        ("a > 2", "a", None),
        ("a = 'x'", "a", None),
        ("a != 5", "a", None),
    ],
)
def test_the_key_of_a_predicate(text: str, by: str, key: tuple | None) -> None:
    assert key_of(parse(text), by) == key


@pytest.mark.parametrize("space", ["plane", "earth"])
def test_no_event_is_left_out_that_matches(space: str) -> None:
    """Points around circles, across the date line and at the poles, too."""
    draws = np.random.default_rng(5)
    for _ in range(60):
        matcher = Matcher(engine="naive", space=space)
        centre = (draws.uniform(-180, 180), draws.choice([0, 60, 88, -89.9]))
        radius = 10 ** draws.uniform(1, 6.8) if space == "earth" else draws.uniform(0, 40)
        for id in range(3):
            x, y = centre + draws.normal(0, 1, 2)
            y = float(np.clip(y, -90, 90))
            matcher.subscribe(id, f"NEAR({x % 360 if id == 2 else x}, {y}, {radius})")
        xs = np.concatenate([draws.uniform(-180, 360, 300), centre[0] + draws.normal(0, 9, 300)])
        ys = np.concatenate([draws.uniform(-90, 90, 300), centre[1] + draws.normal(0, 9, 300)])
        xs, ys = np.clip(xs, -180, 360), np.clip(ys, -90, 90)
        events = pa.record_batch({"x": xs, "y": ys})
        found = matcher.match_many(events, position=("x", "y"), output="count").counts
        rows = may_match(Summary.of(matcher._summary()), events, ("x", "y"), space)
        kept = np.arange(600) if rows is None else rows
        assert set(np.flatnonzero(found)) <= set(kept)
