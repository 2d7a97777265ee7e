"""Streams: the same answers as a batch, whatever happens between the batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import attribute_arguments, expected_pairs
from pyspark.sql import DataFrame, SparkSession

import tamis.spark as ts
from tamis import ArgumentError, ArgumentTypeError, workloads
from tamis.spark import workloads as tables
from tamis.spark.store import Store

Answers = set[tuple[int, int, int]]


class Stream:
    """Events in files, one a micro-batch; matches in files, too."""

    def __init__(self, spark: SparkSession, folder: Path, ref: ts.IndexRef) -> None:
        self.spark, self.folder, self.ref = spark, folder, ref
        self.inbox, self.outbox = folder / "inbox", folder / "outbox"
        self.inbox.mkdir()

    def send(self, *events: tuple[int, int]) -> None:
        frame = self.spark.createDataFrame(list(events), "event int, temp int")
        frame.coalesce(1).write.mode("append").json(str(self.inbox))

    def run(self, sink: Callable[[DataFrame, int], None] | None = None) -> None:
        """Until everything that was sent is matched."""
        events = self.spark.readStream.schema("event int, temp int").option("maxFilesPerTrigger", 1)
        query = (
            ts.write_matches(
                events.json(str(self.inbox)),
                self.ref.path,
                sink or ts.to_files(self.outbox),
                id="event",
            )
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def answers(self) -> Answers:
        rows = self.spark.read.parquet(str(self.outbox)).collect()
        found = {(row["batch"], row["event"], row["subscription"]) for row in rows}
        assert len(found) == len(rows), "a match stands twice"
        return found


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    rows = [(1, "temp > 30"), (2, "temp > 20")]
    frame = spark.createDataFrame(rows, "id int, predicate string")
    return Stream(spark, tmp_path, ts.build_index(frame, tmp_path / "index"))


def change(stream: Stream, *rows: tuple[str, int, str | None]) -> None:
    frame = stream.spark.createDataFrame(list(rows), "change string, id int, predicate string")
    ts.update_index(stream.ref.newest(), frame, mode="failfast")


def test_a_batch_is_matched_with_the_newest_version_when_it_begins(stream: Stream) -> None:
    stream.send((1, 35))
    stream.run()
    change(stream, ("unsubscribe", 1, None), ("subscribe", 3, "temp < 100"))
    stream.send((2, 35))
    stream.run()
    assert stream.answers() == {(0, 1, 1), (0, 1, 2), (1, 2, 2), (1, 2, 3)}


def test_a_batch_that_is_run_again_gets_the_version_it_began_with(stream: Stream) -> None:
    def fail(matches: DataFrame, number: int) -> None:
        ts.to_files(stream.outbox)(matches, number)
        raise RuntimeError("the sink has failed")

    stream.send((1, 35))
    with pytest.raises(Exception, match="the sink has failed"):
        stream.run(fail)
    change(stream, ("unsubscribe", 1, None))
    stream.send((2, 35))
    stream.run()
    assert stream.answers() == {(0, 1, 1), (0, 1, 2), (1, 2, 2)}
    [recorded] = {name.split("/")[0] for name in Store(stream.ref.path).notes("streams")}
    plan = ts.vacuum(stream.ref.path, keep=1)
    assert plan.kept[1] == f"the checkpoint of stream {recorded} needs it"


def test_another_checkpoint_is_another_stream(stream: Stream, tmp_path: Path) -> None:
    stream.send((1, 35))
    stream.run()
    change(stream, ("unsubscribe", 1, None))
    (tmp_path / "checkpoint").rename(tmp_path / "old")
    stream.run()
    assert stream.answers() == {(0, 1, 2)}


def test_a_stream_gives_what_a_batch_gives(spark: SparkSession, tmp_path: Path) -> None:
    workload = workloads.get("flights", n_subscriptions=300)
    ref = ts.build_index(tables.subscriptions(spark, workload), tmp_path / "index", n_shards=2)
    events = tables.events(spark, workload, 600, n_partitions=3)
    events.write.parquet(str(tmp_path / "events"))
    source = (
        spark.readStream.schema(events.schema)
        .option("maxFilesPerTrigger", 2)
        .parquet(str(tmp_path / "events"))
    )
    for name, writer in {
        "changing": ts.write_matches(
            source,
            ref,
            ts.to_files(tmp_path / "changing"),
            id="event",
            **attribute_arguments(workload),
        ),
        "fixed": source.transform(ts.match(ref, id="event"))
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "fixed")),
    }.items():
        query = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        query.trigger(availableNow=True).start().awaitTermination()
        rows = spark.read.parquet(str(tmp_path / name)).select("event", "subscription").collect()
        assert len(rows) == len(set(rows))
        assert {tuple(row) for row in rows} == expected_pairs(workload, 600)


def test_micro_batches_are_routed(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(40).selectExpr("id", "'NEAR(' || id || ', 0, 0.5)' AS predicate")
    ref = ts.build_index(frame, tmp_path / "index", n_shards=3, partition_by="region")
    events = spark.range(40).selectExpr("id AS event", "double(id) AS x", "0D AS y")
    events.write.parquet(str(tmp_path / "events"))
    source = spark.readStream.schema(events.schema).parquet(str(tmp_path / "events"))
    plans = []

    def sink(matches: DataFrame, number: int) -> None:
        plans.append(matches._jdf.queryExecution().toString())
        ts.to_files(tmp_path / "matches")(matches, number)

    words = {"id": "event", "position": ("x", "y"), "route": "always"}
    writer = ts.write_matches(source, ref, sink, **words)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert all("RepartitionByExpression" in plan for plan in plans)
    rows = spark.read.parquet(str(tmp_path / "matches")).collect()
    assert {(row["event"], row["subscription"]) for row in rows} == {(k, k) for k in range(40)}
    with pytest.raises(ArgumentError, match="and a table of events"):
        source.transform(ts.match(ref, **words))


def test_wrong_arguments_fail_before_the_stream_starts(stream: Stream) -> None:
    spark = stream.spark
    table = spark.createDataFrame([(1, 1)], "event int, temp int")
    with pytest.raises(ArgumentError, match="must be a streaming DataFrame"):
        ts.write_matches(table, stream.ref, ts.to_files("out"), id="event")
    source = spark.readStream.format("rate").load()
    with pytest.raises(ArgumentError, match="no 'event'"):
        ts.write_matches(source, stream.ref, ts.to_files("out"), id="event")
    with pytest.raises(ArgumentTypeError, match="sink must be a function"):
        ts.write_matches(source, stream.ref, "out", id="value")
