"""Events as a DataFrame, matched: `events.transform(match(ref, …))`, batch and streaming alike."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tamis.errors import ArgumentError, ArgumentTypeError, EventError
from tamis.spark.events import EventColumns, choose_events
from tamis.spark.frames import check_frame
from tamis.spark.index import IndexRef
from tamis.spark.locality import ROUTES, bring_together
from tamis.spark.taskstats import Stats, StatsOfTask
from tamis.spark.worker import Answer, Int64s, Request, match_events

# Events that are matched at a time where shards are swept: each sweep maps every shard again.
_SWEEP_ROWS = 262_144
_ROWS_PER_BATCH = 1 << 18
# What Spark makes rows of comes in lists of at most so many, which fit its caches.
_IDS_PER_LIST = 1 << 12
_MAX_IDS_PER_LIST = 2**31 - 1

_RESULT_NAMES = {
    ("pairs", "subscriptions"): "subscription",
    ("pairs", "subscribers"): "subscriber",
    ("list", "subscriptions"): "subscriptions",
    ("list", "subscribers"): "subscribers",
    ("count", "subscriptions"): "n_matches",
    ("count", "subscribers"): "n_matches",
}


def match(
    ref: IndexRef,
    *,
    id: str,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    attrs: str | Sequence[str] | None = None,
    position: tuple[str, str] | None = None,
    output: str = "pairs",
    deliver: str = "subscriptions",
    keep: Sequence[str] = (),
    max_mapped_bytes: int | None = None,
    route: str = "auto",
    stats: Stats | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """What `DataFrame.transform` takes: events in, matches out.

    id        the column that says which event it is
    columns   the attributes: names of columns, or attribute → column, where `data.temp` reaches
              into a struct; by default all columns but the id
    attrs     map columns that hold the attributes instead, or besides
    position  the two columns with the position of an event
    output    "pairs": a row for each match, with the column subscription or subscriber
              "list": a row for each event, with the column subscriptions or subscribers
              "count": a row for each event, with the column n_matches
    deliver   "subscriptions", or "subscribers": each once, however many of theirs match
    keep      other columns of the events that the result has too
    max_mapped_bytes  how much of the index a worker has mapped at a time; by default all of it.
              Below that, large batches of events sweep over the shards. One shard is always
              mapped whole: where it has more bytes than that, there is a warning.
    route     "auto": events are shuffled so that those of one place or value come together, where
              the index was built with `partition_by`, cannot be mapped at once and that is
              estimated to pay; "always", "never"
    stats     what tasks have done: an accumulator of `taskstats.gathered`, or a folder that all
              workers see, where each task writes it as JSON

    What is wrong with the columns is an error when the DataFrame is transformed; no task has
    started then.
    """
    wanted = Wanted(id, columns, attrs, position, output, deliver, keep, max_mapped_bytes, stats)
    wanted.check(ref)
    if route not in ROUTES:
        raise ArgumentError(f"route must be {', '.join(ROUTES)}, not {route!r}")

    def transform(events: DataFrame) -> DataFrame:
        check_frame(events, "events")
        matcher, schema = wanted.plan(ref, events.schema)
        events = bring_together(events, ref.manifest, matcher.columns, max_mapped_bytes, route)
        selected = events.select(matcher.columns.select())
        if output != "pairs":
            return selected.mapInArrow(matcher, schema)
        # A list costs Spark about half of what as many rows from Python cost.
        # On the way columns have names of their own: Spark takes `Subscription` for `subscription`.
        *kept, result = schema.fields
        names = [f"c{place}" for place in range(len(schema))]
        fields = [
            T.StructField(name, field.dataType, field.nullable, field.metadata)
            for name, field in zip(names, kept, strict=False)
        ]
        fields.append(T.StructField(names[-1], T.ArrayType(result.dataType, False), False))
        matcher = replace(matcher, output="lists of pairs", names=names)
        lists = selected.mapInArrow(matcher, T.StructType(fields))
        return lists.select(
            *(F.col(name).alias(field.name) for name, field in zip(names, kept, strict=False)),
            F.explode(names[-1]).alias(result.name),
        )

    return transform


@dataclass(frozen=True)
class Wanted:
    """The arguments of `match`, for whoever matches in another way."""

    id: str
    columns: Sequence[str] | Mapping[str, str] | None = None
    attrs: str | Sequence[str] | None = None
    position: tuple[str, str] | None = None
    output: str = "pairs"
    deliver: str = "subscriptions"
    keep: Sequence[str] = ()
    max_mapped_bytes: int | None = None
    stats: Stats | None = None

    def check(self, ref: IndexRef) -> None:
        """What can be wrong before the events are known."""
        if not isinstance(ref, IndexRef):
            raise ArgumentTypeError(f"ref must be an IndexRef, not a {type(ref).__name__}")
        if (self.output, self.deliver) not in _RESULT_NAMES:
            raise ArgumentError(
                "output must be 'pairs', 'list' or 'count' and deliver 'subscriptions' or "
                f"'subscribers', not {self.output!r} and {self.deliver!r}"
            )
        if isinstance(self.keep, str):
            raise ArgumentTypeError(f"keep must be a list of names, not the text {self.keep!r}")
        if self.result_name in self.kept:
            raise ArgumentError(
                f"the result has a column {self.result_name} of its own; rename that of the events"
            )
        limit = self.max_mapped_bytes
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ArgumentError(f"max_mapped_bytes must be an integer from 1 on, not {limit!r}")
        largest = max(shard.n_bytes for shard in ref.manifest.shards)
        if limit is not None and largest > limit:
            warnings.warn(
                f"the largest shard has {largest:,} bytes, which are mapped although "
                f"max_mapped_bytes is {limit:,}; build the index with more shards",
                stacklevel=3,
            )

    @property
    def result_name(self) -> str:
        return _RESULT_NAMES[self.output, self.deliver]

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of the events that the result has, the id first."""
        return (self.id, *(name for name in self.keep if name != self.id))

    def plan(self, ref: IndexRef, events: T.StructType) -> tuple[EventMatcher, T.StructType]:
        """What runs in the tasks, and the schema of what comes out."""
        chosen = choose_events(
            events,
            ref.manifest,
            kept=self.kept,
            columns=self.columns,
            attrs=self.attrs,
            position=self.position,
        )
        request = Request(
            self.deliver,
            "count" if self.output == "count" else "ids",
            chosen.has_position,
            self.max_mapped_bytes,
        )
        id_type: T.DataType = T.LongType() if ref.manifest.id_type == "bigint" else T.StringType()
        kinds = {"pairs": id_type, "list": T.ArrayType(id_type, False), "count": T.LongType()}
        result = T.StructField(self.result_name, kinds[self.output], False)
        schema = T.StructType([*(events[name] for name in self.kept), result])
        matcher = EventMatcher(ref, chosen, request, self.output, schema.names, self.stats)
        return matcher, schema


@dataclass(frozen=True)
class EventMatcher:
    """Runs in the tasks: batches of events in, batches of matches out."""

    ref: IndexRef
    columns: EventColumns
    request: Request
    output: str  # as of `match`, or "lists of pairs": those of an event with matches, in parts
    names: list[str]  # of the result's columns
    stats: Stats | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _spare_collector()
        stats = StatsOfTask(self.stats) if self.stats is not None else None
        if self.request.max_mapped_bytes is not None:
            batches = _joined(batches, _SWEEP_ROWS)
        for batch in batches:
            if not batch.num_rows:
                continue
            kept = self.columns.kept_columns(batch)
            began = time.perf_counter()
            for answer in match_events(self.ref, self.columns.events(batch), self.request):
                if stats is not None:
                    took_s = time.perf_counter() - began
                    stats.add(len(answer.counts), int(answer.counts.sum()), took_s)
                yield from self._rows(kept, answer)
                began = time.perf_counter()
        if stats is not None:
            stats.finish()

    def _rows(self, kept: list[pa.Array], answer: Answer) -> Iterator[pa.RecordBatch]:
        n_events = len(answer.counts)
        mine = [column.slice(answer.begin, n_events) for column in kept]
        if self.output == "count":
            yield self._batch(mine, pa.array(answer.counts))
            return
        assert answer.ids is not None
        ids = answer.ids
        offsets = np.concatenate([[0], np.cumsum(answer.counts)])
        if self.output == "list":
            for begin, end in _cuts(offsets):
                mine_now = [column.slice(begin, end - begin) for column in mine]
                yield self._batch(mine_now, _lists(offsets[begin : end + 1], ids))
            return
        if self.output == "lists of pairs":
            places, offsets = _short_lists(offsets)
            for begin, end in _cuts(offsets):
                taken = pa.array(places[begin:end])
                mine_now = [column.take(taken) for column in mine]
                yield self._batch(mine_now, _lists(offsets[begin : end + 1], ids))
            return
        places = np.repeat(np.arange(n_events, dtype=np.int64), answer.counts)
        for begin in range(0, len(ids), _ROWS_PER_BATCH):
            part = pa.array(places[begin : begin + _ROWS_PER_BATCH])
            yield self._batch(
                [column.take(part) for column in mine], _plain(ids.slice(begin, _ROWS_PER_BATCH))
            )

    def _batch(self, kept: list[pa.Array], result: pa.Array) -> pa.RecordBatch:
        return pa.record_batch([*kept, result], names=self.names)


@cache
def _spare_collector() -> None:
    """Spark collects garbage after each task, an eighth of a worker's time where it looks at all
    that PySpark and pandas have loaded. From now on it looks at what is newer."""
    gc.freeze()


def _short_lists(offsets: Int64s) -> tuple[Int64s, Int64s]:
    """The lists of events, cut into such of at most _IDS_PER_LIST; of which event each is."""
    counts, ends = np.diff(offsets), offsets[1:]
    n_lists = -(-counts // _IDS_PER_LIST)
    places = np.repeat(np.arange(len(counts), dtype=np.int64), n_lists)
    # Each list begins where the one before ended; the last one of an event ends with it.
    number = np.arange(len(places)) - np.repeat(np.cumsum(n_lists) - n_lists, n_lists)
    list_ends = np.minimum((ends - counts)[places] + (number + 1) * _IDS_PER_LIST, ends[places])
    return places, np.concatenate([[0], list_ends])


def _cuts(offsets: Int64s) -> Iterator[tuple[int, int]]:
    """Runs of lists that have at most _ROWS_PER_BATCH ids together, or one that has more."""
    begin, n_lists = 0, len(offsets) - 1
    while begin < n_lists:
        end = int(np.searchsorted(offsets, offsets[begin] + _ROWS_PER_BATCH, side="right")) - 1
        end = min(max(end, begin + 1), n_lists)
        yield begin, end
        begin = end


def _lists(offsets: Int64s, ids: pa.Array) -> pa.ListArray:
    n_ids = int(offsets[-1] - offsets[0])
    if n_ids > _MAX_IDS_PER_LIST:
        raise EventError(
            f"an event has {n_ids:,} matches, and a list of Spark holds {_MAX_IDS_PER_LIST:,}; "
            "use output='pairs' or 'count'"
        )
    part = ids.slice(int(offsets[0]), n_ids)
    return pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), _plain(part))


def _plain(ids: pa.Array) -> pa.Array:
    """As Spark takes them."""
    return ids if pa.types.is_integer(ids.type) else ids.cast(pa.string())


def _joined(batches: Iterator[pa.RecordBatch], n_rows: int) -> Iterator[pa.RecordBatch]:
    waiting: list[Any] = []
    n_waiting = 0
    for batch in batches:
        waiting.append(batch)
        n_waiting += batch.num_rows
        if n_waiting >= n_rows:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, n_waiting = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
