"""What is measured beside ours gives the same answers, and has no more to do than it must."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tamis.spark as ts
from tamis import workloads
from tamis.spark import workloads as tables
from tamis.spark.measure.__main__ import agree, fingerprint
from tamis.spark.measure.sql import (
    _keys,
    explode_and_count,
    filters_of,
    key_sizes,
    nested_loop,
    triple_of_names,
)

MIX = {"min_constraints": 1, "max_constraints": 2, "min_attributes": 20, "max_attributes": 20}


@pytest.mark.parametrize(("parameters", "sizes"), [({}, (3,)), (MIX, (1, 2))])
def test_the_rivals_in_sql_give_what_match_gives(
    spark: SparkSession, tmp_path: Path, parameters: dict, sizes: tuple[int, ...]
) -> None:
    workload = workloads.get("pcm-default", n_subscriptions=300, planted=0.3, **parameters)
    ref = ts.build_index(tables.subscriptions(spark, workload), tmp_path / "index")
    events = tables.events(spark, workload, 40, n_partitions=1).persist()
    filters = filters_of(spark, workload).persist()
    assert key_sizes(filters) == sizes
    ours = fingerprint(events.transform(ts.match(ref, id="event", attrs="numbers")))
    assert ours[0] > 0
    agree("nested loop", fingerprint(nested_loop(events, filters)), ours)
    agree("explode, join, count", fingerprint(explode_and_count(events, filters)), ours)
    agree("key of names", fingerprint(triple_of_names(events, filters, sizes)), ours)
    keys = _keys(events["numbers"], sizes)
    for row in events.select(events["numbers"], keys.alias("keys")).limit(3).collect():
        n_keys = sum(len(list(combinations(row["numbers"], size))) for size in sizes)
        assert len(row["keys"]) == n_keys


def test_pairs_that_differ_have_another_fingerprint(spark: SparkSession) -> None:
    one, other, twice = (
        spark.createDataFrame(pairs, "event int, filter long")
        for pairs in ([(1, 2), (3, 4)], [(1, 4), (3, 2)], [(1, 2), (3, 4), (1, 2)])
    )
    swapped = one.orderBy("event", ascending=False)
    assert fingerprint(one) == fingerprint(swapped)
    for wrong in (other, twice, one.limit(0)):
        with pytest.raises(RuntimeError, match="the key must give the matches"):
            agree("the key", fingerprint(wrong), fingerprint(one))
