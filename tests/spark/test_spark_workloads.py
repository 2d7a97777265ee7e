"""Every way through Spark gives what naive gives outside of it, on samples of the workloads.

One workload of each kind; with `TAMIS_ALL_WORKLOADS=1` all of them, but one of those that differ
in their size alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from answers import attribute_arguments, counts_of, expected_pairs, options_of, pairs_of
from pyspark.sql import DataFrame, SparkSession

import tamis.spark as ts
from tamis import workloads
from tamis.spark import workloads as tables
from tamis.workloads import Workload

N_EVENTS = 800
KEYS = (
    "pcm-strings-50",
    "hem-default",
    "clcb-default",
    "fpga-default",
    "mix-default",
    "mix-areas",
    "flights",
    "cities",
)
FORMS = tuple(product(("pairs", "list", "count"), ("subscriptions", "subscribers")))

Answer = Callable[[str, str], DataFrame]


def sample_of(key: str) -> Workload:
    """So few subscriptions that few events would meet one, but that some are made to."""
    is_real = key.startswith(("flights", "cities"))
    return workloads.get(key, n_subscriptions=400, **({} if is_real else {"planted": 0.3}))


def distinct_keys() -> list[str]:
    """All workloads, but of those that differ only in their size one."""
    key_of: dict[str, str] = {}
    for key in list(workloads.keys()):
        sample = sample_of(key)
        parameters = {name: v for name, v in sample.parameters.items() if name != "n_events"}
        key_of.setdefault(repr((sample.family, sorted(parameters.items()))), key)
    return list(key_of.values())


@pytest.mark.parametrize(
    "key", distinct_keys() if os.environ.get("TAMIS_ALL_WORKLOADS") == "1" else KEYS
)
@pytest.mark.parametrize(
    ("n_shards", "n_partitions", "engine"), [(1, 1, "auto"), (3, 4, "tuple-key")]
)
def test_every_way_gives_what_naive_gives(
    spark: SparkSession, tmp_path: Path, key: str, n_shards: int, n_partitions: int, engine: str
) -> None:
    workload = sample_of(key)
    ref = ts.build_index(
        tables.subscriptions(spark, workload, n_partitions=n_partitions),
        tmp_path / "index",
        n_shards=n_shards,
        engine=engine,
        space=workload.space,
        mode="failfast",
    )
    assert ref.n_subscriptions == workload.n_subscriptions
    expected = {d: expected_pairs(workload, N_EVENTS, d) for d in ("subscriptions", "subscribers")}
    assert expected["subscriptions"]
    write_events(workload, n_partitions, tmp_path / "events")
    ways: dict[str, Answer] = {
        "match": by_match(spark, ref, workload, n_partitions),
        "pushdown": by_pushdown(spark, ref, workload, tmp_path),
        "sql": by_sql(spark, ref, workload, tmp_path),
        "stream": by_stream(spark, ref, workload, tmp_path),
    }
    # The stream takes a second for each form: half of them with one number of shards, half with
    # the other.
    streamed = FORMS[::2] if n_shards == 1 else FORMS[1::2]
    for (way, answer), (output, deliver) in product(ways.items(), FORMS):
        if way == "stream" and (output, deliver) not in streamed:
            continue
        wanted = expected[deliver]
        found = pairs_of(answer(output, deliver), output)
        assert found == (counts_of(wanted) if output == "count" else wanted), (way, output, deliver)


def write_events(workload: Workload, n_files: int, folder: Path) -> None:
    folder.mkdir()
    events = workload.events(N_EVENTS).read_all()
    events = events.add_column(0, "event", pa.array(range(N_EVENTS), pa.int64()))
    each = -(-N_EVENTS // n_files)
    for number in range(n_files):
        part = events.slice(number * each, each)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=150)


def by_match(
    spark: SparkSession, ref: ts.IndexRef, workload: Workload, n_partitions: int
) -> Answer:
    events = tables.events(spark, workload, N_EVENTS, n_partitions=n_partitions)
    words = attribute_arguments(workload)
    return lambda output, deliver: events.transform(
        ts.match(ref, id="event", output=output, deliver=deliver, **words)
    )


def by_pushdown(spark: SparkSession, ref: ts.IndexRef, workload: Workload, folder: Path) -> Answer:
    reader = spark.read.format("tamis").options(index=ref.path, id="event", **options_of(workload))
    return lambda output, deliver: (
        reader.option("rows_per_task", 300)
        .options(output=output, deliver=deliver)
        .load(str(folder / "events"))
    )


def by_sql(spark: SparkSession, ref: ts.IndexRef, workload: Workload, folder: Path) -> Answer:
    spark.read.parquet(str(folder / "events")).createOrReplaceTempView("events")

    def answer(output: str, deliver: str) -> DataFrame:
        words = {"id": "event", "output": output, "deliver": deliver, **options_of(workload)}
        listed = ", ".join(f"{name} => '{text}'" for name, text in words.items())
        return spark.sql(f"SELECT * FROM tamis_match(TABLE(events), '{ref.path}', {listed})")

    return answer


def by_stream(spark: SparkSession, ref: ts.IndexRef, workload: Workload, folder: Path) -> Answer:
    schema = spark.read.parquet(str(folder / "events")).schema
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
    words = attribute_arguments(workload)

    def answer(output: str, deliver: str) -> DataFrame:
        place = folder / f"{output}-{deliver}"
        writer = ts.write_matches(
            source.parquet(str(folder / "events")),
            ref,
            ts.to_files(place),
            id="event",
            output=output,
            deliver=deliver,
            **words,
        )
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{place.name}"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return spark.read.parquet(str(place)).drop("batch")

    return answer
