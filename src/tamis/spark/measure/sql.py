"""What a user of Spark would write without Tamis, for filters that are conjunctions of comparisons.

nested loop   every event against every filter
explode       event attributes joined with constraints by name, then as many as the filter has
triple        a key of up to three names for each filter; an event has the key of every such
              set of its names; what meets is verified
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tamis.language import And, Compare, parse
from tamis.workloads import Workload

_HOLDS = (
    "CASE c.op WHEN '=' THEN {v} = c.value WHEN '!=' THEN {v} != c.value "
    "WHEN '<' THEN {v} < c.value ELSE {v} > c.value END"
)
_ALL_HOLD = f"forall(constraints, c -> coalesce({_HOLDS.format(v='numbers[c.name]')}, false))"


def filters_of(spark: SparkSession, workload: Workload) -> DataFrame:
    """id, constraints array<struct<name, op, value>>, key."""
    ids, constraints, keys = [], [], []
    for row in workload.subscriptions().read_all().to_pylist():
        tree = parse(row["predicate"])
        parts = tree.parts if isinstance(tree, And) else (tree,)
        items: list[dict[str, Any]] = []
        for part in parts:
            assert isinstance(part, Compare)
            items.append(
                {"name": part.name, "op": part.op.replace("<>", "!="), "value": part.value}
            )
        ids.append(row["id"])
        constraints.append(items)
        keys.append(",".join(sorted({item["name"] for item in items})[:3]))
    kind = pa.list_(pa.struct([("name", pa.string()), ("op", pa.string()), ("value", pa.int64())]))
    table = pa.table({"filter": ids, "constraints": pa.array(constraints, kind), "key": keys})
    return spark.createDataFrame(table)


def key_sizes(filters: DataFrame) -> tuple[int, ...]:
    """How many names the keys have."""
    rows = filters.select(F.size(F.split("key", ",")).alias("n")).distinct().collect()
    return tuple(sorted(row["n"] for row in rows))


def nested_loop(events: DataFrame, filters: DataFrame) -> DataFrame:
    joined = events.join(F.broadcast(filters), F.expr(_ALL_HOLD))
    return joined.select("event", "filter")


def explode_and_count(events: DataFrame, filters: DataFrame) -> DataFrame:
    values = events.select("event", F.explode("numbers").alias("name", "v"))
    single = filters.select("filter", F.size("constraints").alias("n"), F.explode("constraints"))
    single = single.select("filter", "n", F.col("col").alias("c"), F.col("col.name").alias("name"))
    met = values.join(single, "name").where(F.expr(_HOLDS.format(v="v")))
    counted = met.groupBy("event", "filter", "n").count()
    return counted.where("count = n").select("event", "filter")


def triple_of_names(events: DataFrame, filters: DataFrame, sizes: tuple[int, ...]) -> DataFrame:
    """`sizes` are those of the filters' keys: an event has no others."""
    keyed = events.withColumn("key", F.explode(_keys(F.col("numbers"), sizes)))
    met = keyed.join(filters, "key").where(F.expr(_ALL_HOLD))
    return met.select("event", "filter")


def _keys(numbers: Column, sizes: tuple[int, ...]) -> Column:
    """All sets of names of the given sizes, in order, as texts."""

    @F.udf("array<string>")
    def of(names: list[str]) -> list[str]:
        names = sorted(names)
        return [",".join(some) for size in sizes for some in combinations(names, size)]

    return of(F.map_keys(numbers))
