"""Subscriptions spread by place or value: the same answers, from fewer shards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from answers import attribute_arguments, counts_of, expected_pairs, pairs_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tamis.spark as ts
from tamis import ArgumentError, Matcher, parse, workloads
from tamis.spark import workloads as tables
from tamis.spark.manifest import File, Piece, Summary
from tamis.spark.partitioning import key_of
from tamis.spark.routing import may_match

N_EVENTS = 600
OUTPUTS = ("pairs", "list", "count")
DELIVERS = ("subscriptions", "subscribers")


WORKLOADS = [
    ("clcb-default", "region"),
    ("cities", "region"),
    ("mix-areas", "region"),
    ("hem-default", "a3"),
    ("flights", "dep_delay"),
    ("mix-default", "a3"),  # in a map, and most subscriptions do not compare it
]
WAYS = [
    *(("always", output, deliver) for output in OUTPUTS for deliver in DELIVERS),
    ("never", "pairs", "subscribers"),
    ("auto", "pairs", "subscriptions"),
]


@pytest.mark.parametrize(("key", "by"), WORKLOADS)
def test_regions_and_values_give_what_naive_gives(
    spark: SparkSession, index: str, key: str, by: str
) -> None:
    is_real = key in ("cities", "flights")
    workload = workloads.get(key, n_subscriptions=400, **({} if is_real else {"planted": 0.3}))
    ref = ts.build_index(
        tables.subscriptions(spark, workload),
        index,
        n_shards=5,
        partition_by=by,
        space=workload.space,
        mode="failfast",
    )
    sizes = [shard.n_subscriptions for shard in ref.manifest.shards]
    assert sum(sizes) == 400
    assert max(sizes) < 2.5 * 400 / 5
    events = tables.events(spark, workload, N_EVENTS, n_partitions=2)
    expected = {deliver: expected_pairs(workload, N_EVENTS, deliver) for deliver in DELIVERS}
    assert expected["subscriptions"]
    words = attribute_arguments(workload)
    words["max_mapped_bytes"] = max(shard.n_bytes for shard in ref.manifest.shards)
    for route, output, deliver in WAYS:
        matching = ts.match(ref, id="event", route=route, output=output, deliver=deliver, **words)
        wanted = expected[deliver]
        found = pairs_of(events.transform(matching), output)
        assert found == (counts_of(wanted) if output == "count" else wanted), (route, output)


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


HOT = {
    "region": ("NEAR(1, 1, 2) AND b = ", {"x": 1.0, "y": 1.0}),
    "price": ("price = 7 AND b = ", {"price": 7}),
}


@pytest.mark.parametrize("by", HOT)
def test_one_place_or_value_of_everybody_makes_even_shards_and_tasks(
    spark: SparkSession, index: str, by: str
) -> None:
    text, values = HOT[by]
    frame = spark.range(600).selectExpr("id", f"'{text}' || id % 3 AS predicate")
    ref = ts.build_index(frame, index, n_shards=5, partition_by=by, mode="failfast")
    sizes = [shard.n_subscriptions for shard in ref.manifest.shards]
    assert sizes[0] == 0
    assert min(sizes[1:]) > 100
    events = spark.range(2000).withColumnRenamed("id", "event")
    events = events.withColumns({name: F.lit(v) for name, v in {**values, "b": 1}.items()})
    position = ("x", "y") if by == "region" else None
    routed = events.transform(
        ts.match(ref, id="event", position=position, route="always", output="count")
    )
    tasks = routed.groupBy(F.spark_partition_id()).agg(F.count("*"), F.sum("n_matches")).collect()
    per_task = [row[1] for row in tasks]
    assert len(per_task) == 5
    assert max(per_task) <= 2 * 2000 / 5
    assert sum(row[2] for row in tasks) == 2000 * 200


def test_many_without_a_place_are_several_shards_of_about_one_size(
    spark: SparkSession, index: str
) -> None:
    frame = spark.range(900).selectExpr(
        "id", "IF(id % 3 = 0, 'NEAR(' || id || ', 0, 1)', 'b = ' || id % 4) AS predicate"
    )
    ref = ts.build_index(frame, index, n_shards=6, partition_by="region", mode="failfast")
    sizes = [shard.n_subscriptions for shard in ref.manifest.shards]
    assert sum(sizes) == 900
    assert max(sizes) < 1.5 * 900 / 6
    has_area = [shard.summary.n_with_area > 0 for shard in ref.manifest.shards]
    assert has_area == [False] * 4 + [True] * 2
    changes = [("subscribe", 0, "b = 3"), ("subscribe", 1, "NEAR(3, 0, 1)")]
    changes = spark.createDataFrame(changes, "change string, id long, predicate string")
    ref = ts.update_index(ref, changes, mode="failfast")
    events = spark.createDataFrame([(1, 3, 3.0, 0.0)], "event int, b int, x double, y double")
    matches = events.transform(ts.match(ref, id="event", position=("x", "y"), route="always"))
    expected = {k for k in range(900) if k % 3 and k % 4 == 3} | {0, 1, 3}
    assert pairs_of(matches, "pairs") == {(1, id) for id in expected}


def is_routed(matches: DataFrame) -> bool:
    return "RepartitionByExpression" in matches._jdf.queryExecution().toString()


def of_size(ref: ts.IndexRef, n_bytes: int) -> ts.IndexRef:
    """A version whose manifest says that it has so many bytes. It can be planned with."""
    old = ref.manifest
    each = n_bytes // len(old.shards)
    files = (File("large", (Piece("0" * 64, each),)),)
    shards = tuple(replace(shard, files=files) for shard in old.shards)
    new = replace(old, version=old.version + 1, shards=shards)
    ref.store.write_version(new.version, new.to_json())
    return ref.newest()


@pytest.fixture
def prices(spark: SparkSession, index: str) -> ts.IndexRef:
    frame = spark.range(100).selectExpr("id", "'price = ' || id AS predicate")
    return ts.build_index(frame, index, n_shards=8, partition_by="price", mode="failfast")


@pytest.mark.parametrize(
    ("n_bytes", "limit", "n_events", "is_wanted"),
    [
        (10**6, 10**5, 10**3, False),  # a shuffle takes longer than to map a megabyte
        (10**10, None, 10**3, False),  # all of it stays mapped
        (10**10, 10**10, 10**3, False),
        (10**10, 2 * 10**9, 10**3, True),
        (10**10, 2 * 10**9, 10**12, True),
        (10**9, 2 * 10**8, 10**12, False),  # the events have more bytes than all sweeps
    ],
)
def test_events_are_routed_where_that_is_less_work(
    spark: SparkSession,
    prices: ts.IndexRef,
    n_bytes: int,
    limit: int | None,
    n_events: int,
    is_wanted: bool,
) -> None:
    ref = of_size(prices, n_bytes)
    events = spark.range(n_events).selectExpr("id AS event", "id % 100 AS price")
    matches = events.transform(ts.match(ref, id="event", max_mapped_bytes=limit))
    assert is_routed(matches) == is_wanted


def test_a_shard_above_the_limit_is_a_warning(prices: ts.IndexRef) -> None:
    with pytest.warns(UserWarning, match=r"largest shard has .* build the index with more shards"):
        ts.match(prices, id="event", max_mapped_bytes=1)


def test_to_transform_runs_no_job(spark: SparkSession, prices: ts.IndexRef) -> None:
    ref = of_size(prices, 10**10)
    shuffled = spark.range(1000).groupBy((F.col("id") % 50).alias("event"))
    events = shuffled.agg(F.max("id").alias("price"))
    context = spark.sparkContext
    context.setJobGroup("transform", "only plans")
    try:
        for route in ("auto", "always"):
            matching = ts.match(ref, id="event", max_mapped_bytes=2 * 10**9, route=route)
            assert is_routed(events.transform(matching))
        assert not context.statusTracker().getJobIdsForGroup("transform")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("7 AS price", {}),
        ("7 AS cost", {"columns": {"price": "cost"}}),
        ("struct(7 AS cost) AS data", {"columns": {"price": "data.cost"}}),
        ("map('price', 7) AS seen", {"attrs": "seen"}),
        ("map('price', '7') AS seen", {"attrs": "seen"}),
        ("'7' AS price", {}),
        ("'seven' AS price", {}),
        ("true AS price", {}),
        ("CAST(NULL AS int) AS price", {}),
        ("DATE '1970-01-01' AS price", {}),
        ("TIMESTAMP '1970-01-01 00:00:00.000007Z' AS price", {}),
    ],
)
def test_events_are_routed_by_whatever_has_the_attribute(
    spark: SparkSession, index: str, column: str, words: dict
) -> None:
    rows = [(k, f"price = {k}") for k in range(20)]
    rows += [(20, "price = 'seven'"), (21, "price = '7'"), (22, "price = TRUE"), (23, "TRUE")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    ref = ts.build_index(frame, index, n_shards=4, partition_by="price", mode="failfast")
    events = spark.range(10).selectExpr("id AS event", column)
    found = {
        route: pairs_of(events.transform(ts.match(ref, id="event", route=route, **words)), "pairs")
        for route in ("never", "always")
    }
    assert found["always"] == found["never"]
    assert len(found["never"]) == (10 if column.startswith("CAST") else 20)


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
