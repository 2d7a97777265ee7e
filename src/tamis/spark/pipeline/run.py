"""Runs a pipeline: builds the index, matches, writes, and says how it went."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tamis.errors import ArgumentError
from tamis.spark import workloads
from tamis.spark.building import build_index
from tamis.spark.index import IndexRef
from tamis.spark.matching import match
from tamis.spark.pipeline.config import Config
from tamis.spark.pipeline.report import Report, slowest_subscriptions
from tamis.spark.runtime import session
from tamis.spark.store import absolute_uri
from tamis.spark.streaming import write_matches
from tamis.spark.taskstats import read_stats

Progress = Callable[[str, float | None], None]
_POLL_S = 0.2
_N_TOP = 10


def run_pipeline(config: Config, on_progress: Progress = lambda text, share: None) -> Report:
    """Runs a pipeline to its end; Ctrl-C ends a stream between two batches, and a batch at once."""
    began = time.monotonic()
    spark = session("tamis pipeline", config.spark.master, conf=config.spark.conf)
    spark.sparkContext.setLogLevel("ERROR")
    stats = Path(tempfile.mkdtemp(prefix="tamis-stats-"))
    try:
        return _run(spark, config, stats, on_progress, began)
    except KeyboardInterrupt:
        spark.sparkContext.cancelAllJobs()
        raise
    finally:
        shutil.rmtree(stats, ignore_errors=True)
        spark.stop()


def _run(
    spark: SparkSession, config: Config, stats: Path, on_progress: Progress, began: float
) -> Report:
    report = Report(title=config.events.path, index_path=absolute_uri(config.index.path))
    ref = _index(spark, config, report, on_progress)
    report.n_subscriptions, report.version = ref.n_subscriptions, ref.version
    report.n_rejected, report.n_shards = ref.n_rejected, len(ref.manifest.shards)
    arguments: dict[str, Any] = {
        "id": config.events.id,
        "columns": config.events.columns or None,
        "attrs": config.events.attrs or None,
        "position": tuple(config.events.position) or None,
        "output": config.matches.output,
        "deliver": config.matches.deliver,
        "keep": config.matches.keep,
        "stats_folder": str(stats),
    }
    started = time.monotonic()
    if config.events.stream:
        _stream(spark, config, ref, arguments, report, on_progress)
    else:
        matches = _events(spark, config).transform(match(ref, **arguments))
        writer = matches.write.format(config.matches.format).mode("overwrite")
        writer = writer.options(**config.matches.options)
        _watched(spark, lambda: writer.save(absolute_uri(config.matches.path)), on_progress)
    report.match_s = time.monotonic() - started
    report.tasks = read_stats(stats)
    on_progress("closing report", None)
    _subscriptions_of(spark, config, ref, report)
    report.total_s = time.monotonic() - began
    return report


def _index(spark: SparkSession, config: Config, report: Report, on_progress: Progress) -> IndexRef:
    source = config.subscriptions
    if source is None:
        return IndexRef.open(config.index.path)
    if source.format == "workload":
        frame = workloads.subscriptions(spark, source.path, **_numbers(source.options))
    else:
        reader = spark.read.format(source.format).options(**source.options)
        frame = (reader.schema(source.schema) if source.schema else reader).load(source.path)
    started = time.monotonic()
    found: list[IndexRef] = []

    def build() -> None:
        found.append(
            build_index(
                frame,
                config.index.path,
                id=source.id,
                predicate=source.predicate,
                subscriber=source.subscriber or None,
                engine=config.index.engine,
                space=config.index.space,
                n_shards=config.index.shards or None,
                mode=config.index.mode,
            )
        )

    _watched(spark, build, lambda text, share: on_progress(f"building the index, {text}", share))
    report.build_s = time.monotonic() - started
    return found[0]


def _numbers(options: Any) -> dict[str, Any]:
    return {name: int(text) if text.isdecimal() else text for name, text in options.items()}


def _events(spark: SparkSession, config: Config) -> DataFrame:
    source = config.events
    if source.format == "workload":
        if source.stream:
            raise ArgumentError("a workload is no stream; write it to files and read those")
        return workloads.events(spark, source.path, source.rows or None, **_numbers(source.options))
    reader: Any = spark.readStream if source.stream else spark.read
    reader = reader.format(source.format).options(**source.options)
    if source.schema:
        reader = reader.schema(source.schema)
    elif source.stream and source.format in ("parquet", "json", "csv", "orc", "text"):
        there = spark.read.format(source.format).options(**source.options).load(source.path)
        reader = reader.schema(there.schema)
    frame: DataFrame = reader.load(source.path)
    return frame


def _stream(
    spark: SparkSession,
    config: Config,
    ref: IndexRef,
    arguments: dict[str, Any],
    report: Report,
    on_progress: Progress,
) -> None:
    target = absolute_uri(config.matches.path)

    def sink(matches: DataFrame, number: int) -> None:
        writer = matches.write.format(config.matches.format).options(**config.matches.options)
        writer.mode("overwrite").save(f"{target}/batch={number}")

    writer = write_matches(_events(spark, config), ref, sink, **arguments)
    writer = writer.option("checkpointLocation", absolute_uri(config.events.checkpoint))
    trigger = config.events.trigger
    writer = (
        writer.trigger(availableNow=True)
        if trigger == "available"
        else writer.trigger(processingTime=trigger)
    )
    query = writer.start()
    seen = -1
    try:
        while not query.awaitTermination(1):
            seen = _note_batches(query, report, seen)
            n_events = sum(n for _, n, _ in report.batches)
            on_progress(f"{len(report.batches)} batches, {n_events:,} events", None)
    except KeyboardInterrupt:  # the way to end a stream
        query.stop()
    _note_batches(query, report, seen)


def _note_batches(query: Any, report: Report, seen: int) -> int:
    for progress in query.recentProgress:
        number = progress["batchId"]
        if number > seen and progress["numInputRows"]:
            took_s = progress["durationMs"].get("triggerExecution", 0) / 1000
            report.batches.append((number, progress["numInputRows"], took_s))
            seen = number
    return seen


def _watched(spark: SparkSession, work: Callable[[], Any], on_progress: Progress) -> None:
    """Does it in a thread of its own, and tells how many tasks are done meanwhile."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    while thread.is_alive():
        thread.join(_POLL_S)
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        n_tasks = sum(stage.numTasks for stage in stages if stage)
        n_done = sum(stage.numCompletedTasks for stage in stages if stage)
        if n_tasks:
            on_progress(f"{n_done} of {n_tasks} tasks", n_done / n_tasks)
    if errors:
        raise errors[0]


def _subscriptions_of(spark: SparkSession, config: Config, ref: IndexRef, report: Report) -> None:
    """The busiest subscriptions, and the slowest of a sample."""
    if config.matches.deliver != "subscriptions" or config.matches.output == "count":
        return
    matches = spark.read.format(config.matches.format).options(**config.matches.options)
    try:
        frame = matches.load(absolute_uri(config.matches.path))
    except AnalysisException:  # a sink that cannot be read, or nothing was written
        return
    if config.matches.output == "list":
        frame = frame.select(F.explode("subscriptions").alias("subscription"))
    top = frame.groupBy("subscription").count().orderBy(F.desc("count")).limit(_N_TOP).collect()
    report.busiest = [(row["subscription"], row["count"]) for row in top]
    if not config.events.stream:
        sample = _events(spark, config).limit(2000).toArrow()
        report.slowest = slowest_subscriptions(
            config, ref, sample, [id for id, _ in report.busiest]
        )
