"""Streams of events against an index that changes meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tamis.errors import ArgumentError, ArgumentTypeError
from tamis.spark.frames import check_frame
from tamis.spark.index import IndexRef
from tamis.spark.matching import match
from tamis.spark.store import absolute_uri
from tamis.spark.versions import version_of_batch

Sink = Callable[[DataFrame, int], None]


def write_matches(
    events: DataFrame, index: str | os.PathLike[str] | IndexRef, sink: Sink, **arguments: Any
) -> DataStreamWriter:
    """Matches a stream, each micro-batch with the newest version of the index when it begins.

    sink       gets the matches of a batch and its number: `to_files(…)`, or a function. A batch
               that failed half-way comes again, with the same version of the index: a sink that
               replaces what it wrote for that number has each match exactly once.
    arguments  those of `match`

    The result is Spark's own writer: give it a checkpoint and start it.

        write_matches(events, ref, to_files("/data/matches"), id="event") \\
            .option("checkpointLocation", "/data/checkpoint").start()
    """
    check_frame(events, "events")
    if not events.isStreaming:
        raise ArgumentError(
            "events must be a streaming DataFrame (spark.readStream); for others there is "
            "events.transform(match(…))"
        )
    if not callable(sink):
        raise ArgumentTypeError(f"sink must be a function of matches and a batch, not {sink!r}")
    path = index.path if isinstance(index, IndexRef) else absolute_uri(index)
    batch_like = events.sparkSession.createDataFrame([], events.schema)
    match(IndexRef.open(path), **arguments)(batch_like)  # what is wrong fails here

    def match_batch(batch: DataFrame, number: int) -> None:
        stream = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert stream is not None  # Spark sets it for each batch
        ref = version_of_batch(path, stream, number)
        sink(batch.transform(match(ref, **arguments)), number)

    return events.writeStream.foreachBatch(match_batch)


def to_files(
    path: str | os.PathLike[str],
    format: str = "parquet",
    options: Mapping[str, str] | None = None,
) -> Sink:
    """A sink: the matches of batch 7 are the files in `<path>/batch=7`, written anew if it is run
    again. Read them all with `spark.read.parquet(path)`; the column batch tells them apart.
    """
    folder = absolute_uri(path)

    def write(matches: DataFrame, number: int) -> None:
        writer = matches.write.format(format).mode("overwrite").options(**(options or {}))
        writer.save(f"{folder}/batch={number}")

    return write
