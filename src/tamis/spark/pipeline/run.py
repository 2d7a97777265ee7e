"""Runs a pipeline: builds the index, matches, writes, and says how it went.

The work is done in a thread of its own. The main thread, to which Ctrl-C comes, watches it: it
tells how far Spark is, and takes Ctrl-C as a wish that the work follows when nothing is half done.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

from tamis.spark import workloads
from tamis.spark.building import build_index
from tamis.spark.events import choose_events
from tamis.spark.index import IndexRef
from tamis.spark.matching import match
from tamis.spark.pipeline.config import FILE_FORMATS, Config, Events, Subscriptions
from tamis.spark.pipeline.failures import SPARK_ERRORS, Interrupted, PipelineError, reason_of
from tamis.spark.pipeline.report import Report, slowest_subscriptions
from tamis.spark.runtime import session
from tamis.spark.store import absolute_uri
from tamis.spark.streaming import write_matches
from tamis.spark.taskstats import gathered
from tamis.spark.versions import version_of_batch

Progress = Callable[[str, float | None], None]
_POLL_S = 0.2
_STREAM_POLL_S = 1
_N_TOP = 10
_N_SAMPLE = 2000  # events, for what the report says of single subscriptions
_N_BATCHES_READ = 1000  # of a stream's matches, for the same


def run_pipeline(
    config: Config,
    on_progress: Progress = lambda text, share: None,
    *,
    spark: SparkSession | None = None,
) -> Report:
    """Runs a pipeline to its end.

    on_progress  is told what is done, and how much of it if that is known
    spark        the session to run in, which stays; by default one of its own, which ends with it

    Ctrl-C ends a stream when the batch that is under way is written; what is no stream it cancels.
    The second Ctrl-C ends everything at once.
    """
    mine = None
    if spark is None:
        # Spark tells the same error several times, with the stacks of its threads.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        conf = {"spark.log.level": "OFF", **config.spark.conf}
        spark = mine = session("tamis pipeline", config.spark.master, conf=conf)
    try:
        return _Run(spark, config).watched(on_progress)
    except SPARK_ERRORS as error:
        raise PipelineError(reason_of(error)) from error
    finally:
        if mine is not None:
            mine.stop()


class _Run:
    """One run of a pipeline."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._spark = spark
        self._config = config
        self._report = Report(
            title=config.events.path or config.events.format,
            index_path=absolute_uri(config.index.path),
        )
        self._tag = f"tamis-pipeline-{uuid.uuid4().hex}"
        self._tasks = gathered(spark)
        self._doing = "starting"
        self._left = "nothing was done"  # what is there if it is interrupted now
        self._is_streaming = False
        self._is_asked_to_stop = threading.Event()
        self._is_cancelled = False
        self._sink_error: Exception | None = None
        self._stream_id = ""
        self._written: deque[int] = deque(maxlen=_N_BATCHES_READ)  # batches of this run
        self._schema: T.StructType | None = None  # of the matches

    # ── in the main thread ──

    def watched(self, on_progress: Progress) -> Report:
        """Does the work, and tells how many tasks are done meanwhile."""
        errors: list[BaseException] = []

        def work() -> None:
            try:
                self._spark.sparkContext.addJobTag(self._tag)
                self._work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        context = self._spark.sparkContext
        with self._ctrl_c():
            thread.start()
            while thread.is_alive():
                thread.join(_POLL_S)
                on_progress(*self._progress())
                if not self._is_streaming and self._is_asked_to_stop.is_set():
                    self._is_cancelled = True
                    context.cancelJobsWithTag(self._tag)
        if not errors:
            return self._report
        if self._is_cancelled or isinstance(errors[0], Interrupted):
            raise Interrupted(f"interrupted; {self._left}") from errors[0]
        raise errors[0]

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """Spark's own answer to Ctrl-C cancels the batch of a stream."""

        def ask(number: int, frame: Any) -> None:
            if self._is_asked_to_stop.is_set():
                raise Interrupted("interrupted at once; a batch under way may be there in part")
            self._is_asked_to_stop.set()

        if threading.current_thread() is not threading.main_thread():  # it does not come here
            yield
            return
        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        except Interrupted:
            self._spark.sparkContext.cancelJobsWithTag(self._tag)
            raise
        finally:
            signal.signal(signal.SIGINT, before)

    def _progress(self) -> tuple[str, float | None]:
        if self._is_asked_to_stop.is_set():
            return f"stopping: {self._doing}", None
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        n_tasks = sum(stage.numTasks for stage in stages if stage)
        n_done = sum(stage.numCompletedTasks for stage in stages if stage)
        if not n_tasks:
            return self._doing, None
        share = None if self._is_streaming else n_done / n_tasks
        return f"{self._doing}, {n_done} of {n_tasks} tasks", share

    # ── in the thread that works ──

    def _work(self) -> None:
        began = time.monotonic()
        is_stream = self._config.events.stream
        events = self._read(self._config.events, is_stream)  # wrong ones fail before all else
        ref = self._ref = self._index()
        self._report.version = ref.version
        if is_stream:
            self._stream(ref, events)
        else:
            self._table(ref, events)
        self._close()
        self._report.total_s = time.monotonic() - began

    def _begin(self, doing: str, left: str) -> None:
        self._doing, self._left = doing, left
        if self._is_asked_to_stop.is_set():
            raise Interrupted

    def _index(self) -> IndexRef:
        source, index = self._config.subscriptions, self._config.index
        if source is None:
            return IndexRef.open(index.path)
        self._begin("building the index", "there is no new version of the index, and no match")
        started = time.monotonic()
        ref = build_index(
            self._read(source),
            index.path,
            id=source.id,
            predicate=source.predicate,
            subscriber=source.subscriber or None,
            engine=index.engine,
            space=index.space,
            n_shards=index.shards or None,
            partition_by=index.partition_by,
            mode=index.mode,
        )
        self._report.build_s = time.monotonic() - started
        return ref

    def _read(self, source: Subscriptions | Events, is_stream: bool = False) -> DataFrame:
        """The rows of a source, with the columns that are selected."""
        if source.format == "workload":
            frame = self._workload(source)
        else:
            reader: Any = self._spark.readStream if is_stream else self._spark.read
            reader = reader.format(source.format).options(**source.options)
            if source.schema:
                reader = reader.schema(source.schema)
            elif is_stream and source.format in FILE_FORMATS:  # a stream does not look itself
                there = self._spark.read.format(source.format).options(**source.options)
                reader = reader.schema(there.load(source.path or None).schema)
            frame = reader.load(source.path or None)
        return frame.selectExpr(*source.select) if source.select else frame

    def _workload(self, source: Subscriptions | Events) -> DataFrame:
        options: dict[str, Any] = {name: _number(text) for name, text in source.options.items()}
        if isinstance(source, Subscriptions):
            return workloads.subscriptions(self._spark, source.path, **options)
        return workloads.events(self._spark, source.path, source.rows or None, **options)

    def _arguments(self, **others: Any) -> dict[str, Any]:
        events, matches = self._config.events, self._config.matches
        return {
            "id": events.id,
            "columns": events.columns or None,
            "attrs": events.attrs or None,
            "position": tuple(events.position) or None,
            "output": matches.output,
            "deliver": matches.deliver,
            "keep": matches.keep,
            "max_mapped_bytes": matches.max_mapped_bytes or None,
            "route": matches.route,
            **others,
        }

    def _table(self, ref: IndexRef, events: DataFrame) -> None:
        target = self._config.matches
        left = "no match was written" if target.path else "matches may be there in part"
        self._begin("matching", left)
        matches = events.transform(match(ref, **self._arguments(stats=self._tasks)))
        started = time.monotonic()
        self._write(matches, target.path, self._mode)
        self._report.match_s = time.monotonic() - started

    @property
    def _mode(self) -> str:
        target = self._config.matches
        return target.mode or ("overwrite" if target.path else "append")

    def _write(self, matches: DataFrame, path: str, mode: str) -> None:
        target = self._config.matches
        if target.select:
            matches = matches.selectExpr(*target.select)
        self._schema = matches.schema
        writer = matches.write.format(target.format).options(**target.options).mode(mode)
        writer.save(absolute_uri(path) if path else None)

    def _stream(self, ref: IndexRef, events: DataFrame) -> None:
        """Matches a stream until it ends or is asked to."""
        source, target = self._config.events, self._config.matches
        self._begin("matching", "no match was written")

        def sink(matches: DataFrame, number: int) -> None:
            try:
                if self._is_asked_to_stop.is_set():
                    raise _Refused  # the batch is not begun, and is the first of the next run
                # Written anew if the batch is run again; what has no path gets it twice then.
                path = f"{target.path}/batch={number}" if target.path else ""
                self._write(matches, path, "overwrite" if path else "append")
                if not self._written:
                    context = matches.sparkSession.sparkContext
                    self._stream_id = str(context.getLocalProperty("sql.streaming.queryId"))
                    first = version_of_batch(ref.path, self._stream_id, number)
                    self._report.version = first.version
                self._written.append(number)
            except Exception as error:  # whatever it is: Spark would hand on its text alone
                self._sink_error = error
                raise

        writer = write_matches(events, ref, sink, **self._arguments(stats=self._tasks))
        writer = writer.option("checkpointLocation", absolute_uri(source.checkpoint))
        writer = (
            writer.trigger(availableNow=True)
            if source.trigger == "available"
            else writer.trigger(processingTime=source.trigger)
        )
        self._is_streaming = True
        query = writer.start()
        try:
            while not query.awaitTermination(_STREAM_POLL_S):
                self._note_batches(query)
                # A batch that began before is written; the sink refuses one that begins now.
                if self._is_asked_to_stop.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
        except StreamingQueryException as error:
            if self._sink_error is None:
                raise
            if not isinstance(self._sink_error, _Refused):
                raise self._sink_error from error
        self._note_batches(query)
        self._is_asked_to_stop.clear()  # it has stopped; in this order, or the report is cancelled
        self._is_streaming = False

    def _note_batches(self, query: StreamingQuery) -> None:
        report = self._report
        seen = report.batches[-1][0] if report.batches else -1
        for progress in query.recentProgress:
            number, n_events = progress["batchId"], progress["numInputRows"]
            if number > seen and number in self._written and n_events:
                took_s = progress["durationMs"].get("triggerExecution", 0) / 1000
                report.add_batch(number, n_events, took_s)
                report.match_s += took_s
        n_events = self._tasks.value.n_events
        self._doing = f"matching, {report.n_batches:,} batches, {n_events:,} events"

    # ── when the matches are written ──

    def _close(self) -> None:
        """What fails here is said in the report, and is no failure of the run."""
        self._doing = "closing report"
        self._report.tasks = self._tasks.value
        for what, ask in (
            ("index", self._last_version),
            ("busiest", self._busiest),
            ("slowest", self._slowest),
        ):
            try:
                ask()
            except Exception as error:  # the matches are written, whatever this one is
                self._report.notes.append(f"{what:<10} not known: {reason_of(error)}")

    def _last_version(self) -> None:
        if self._written:
            self._ref = version_of_batch(self._ref.path, self._stream_id, self._written[-1])
        ref, report = self._ref, self._report
        report.last_version, report.n_subscriptions = ref.version, ref.n_subscriptions
        report.n_rejected, report.n_shards = ref.n_rejected, len(ref.manifest.shards)

    def _busiest(self) -> None:
        if not self._report.n_matches:
            return
        found = self._matches_of_run()
        if found is None:
            self._report.busiest_in = f"a sample of {_N_SAMPLE:,} events or fewer"
            whole = self._arguments(output="pairs", deliver="subscriptions", keep=())
            found = self._sample().transform(match(self._ref, **whole))
        top = found.groupBy("subscription").count().orderBy(F.desc("count"), "subscription")
        self._report.busiest = [
            (row["subscription"], row["count"]) for row in top.limit(_N_TOP).collect()
        ]

    def _matches_of_run(self) -> DataFrame | None:
        """The subscriptions that were written, if they are where they can be read alone."""
        target = self._config.matches
        if self._schema is None or not target.path:
            return None
        if not self._written and self._mode != "overwrite":  # there may be others
            return None
        paths = [absolute_uri(target.path)]
        if self._written:
            paths = [f"{paths[0]}/batch={number}" for number in self._written]
            n = len(paths)
            self._report.busiest_in = "this run" if n < _N_BATCHES_READ else f"the last {n} batches"
        reader = self._spark.read.format(target.format).options(**target.options)
        # A file need not say what its columns are called, nor what they hold.
        reader = reader.schema(self._schema)
        if "subscription" in self._schema.names:
            return reader.load(paths).select("subscription")
        if "subscriptions" in self._schema.names:
            return reader.load(paths).select(F.explode("subscriptions").alias("subscription"))
        return None

    def _sample(self) -> DataFrame:
        """Some events of the source, also of one that was read as a stream."""
        return self._read(self._config.events).limit(_N_SAMPLE)

    def _slowest(self) -> None:
        if not self._report.n_events:
            return
        ref, frame = self._ref, self._sample()
        words = {name: self._arguments()[name] for name in ("columns", "attrs", "position")}
        chosen = choose_events(frame.schema, ref.manifest, kept=(self._config.events.id,), **words)
        table = frame.select(chosen.select()).toArrow()
        if not table.num_rows:
            return
        events = chosen.events(table.combine_chunks().to_batches()[0])
        report = self._report
        busiest = [id for id, _ in report.busiest]
        report.slowest, n = slowest_subscriptions(ref, events, chosen.has_position, busiest)
        report.slowest_of = f"{n:,}, with {events.num_rows:,} events"


class _Refused(Exception):
    """A batch of a stream that is not begun any more."""


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
