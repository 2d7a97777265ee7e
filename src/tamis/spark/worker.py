"""What runs in Spark's Python workers: events of Arrow against the shards of an index.

Nothing here knows Spark. Shards stay mapped from task to task and from micro-batch to micro-batch,
as long as the process lives.

    events, in slices ──► shard 0 ─┐
                     ──► shard 1 ─┼─► one answer for each event: lists joined, counts added,
                     ──► shard 2 ─┘   subscribers of several shards made unique
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.spark.cache import OpenShard, open_shard
from tamis.spark.index import IndexRef
from tamis.spark.manifest import Manifest, Shard
from tamis.spark.routing import may_match

Int64s = npt.NDArray[np.int64]

POSITION = (" x", " y")
"""The names of position columns; no predicate can write them without quotes."""

# An answer is cut into parts of about so many ids, so that events with many matches fit.
_IDS_PER_PART = 1 << 22
_FIRST_SLICE = 64  # events whose matches are counted before larger slices are tried
_MAX_GROWTH = 4


@dataclass(frozen=True)
class Request:
    """What is asked of the events."""

    deliver: str  # "subscriptions" or "subscribers"
    output: str  # "ids" or "count"
    has_position: bool
    max_mapped_bytes: int | None = None  # of shards that are open at a time


@dataclass(frozen=True)
class Answer:
    """The matches of the events `begin` to `begin + len(counts)`."""

    begin: int
    counts: Int64s
    ids: pa.Array | None  # None where only counts were asked for


class OpenShards:
    """The shards that this process has mapped, the least recently used first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[OpenShard, int]] = OrderedDict()
        # Of the events before: how many can be matched at a time. Each slice sweeps all shards.
        self.n_slice = _FIRST_SLICE // _MAX_GROWTH
        self.matches_per_event = 0.0

    def get(self, ref: IndexRef, manifest: Manifest, shard: Shard, limit: int | None) -> OpenShard:
        known = self._open.get(shard.key)
        if known is not None:
            self._open.move_to_end(shard.key)
            return known[0]
        if limit is not None:
            self._close_all_above(limit - shard.n_bytes)
        opened = open_shard(ref.store, manifest, shard)
        self._open[shard.key] = (opened, shard.n_bytes)
        return opened

    def keep_only(self, keys: set[str]) -> None:
        """Lets go of what a newer version of the index no longer has."""
        for key in [key for key in self._open if key not in keys]:
            self._open.pop(key)[0].close()

    def _close_all_above(self, n_bytes: int) -> None:
        while self._open and sum(size for _, size in self._open.values()) > n_bytes:
            self._open.popitem(last=False)[1][0].close()


_shards: dict[str, OpenShards] = {}  # by the path of the index


def match_events(ref: IndexRef, events: pa.RecordBatch, request: Request) -> Iterator[Answer]:
    """The answers of a batch of events, in order, one slice of the events after the other."""
    manifest = ref.manifest
    shards = _shards.setdefault(ref.path, OpenShards())
    shards.keep_only({shard.key for shard in manifest.shards})
    begin = 0
    while begin < events.num_rows:
        n_most = _IDS_PER_PART / max(shards.matches_per_event, 1e-6)
        n_slice = int(max(1, min(n_most, shards.n_slice * _MAX_GROWTH)))
        part = events.slice(begin, n_slice)
        answer = _match_slice(ref, manifest, shards, part, request, begin)
        yield answer
        begin += part.num_rows
        shards.n_slice = n_slice
        shards.matches_per_event = float(answer.counts.mean())


def _match_slice(
    ref: IndexRef,
    manifest: Manifest,
    shards: OpenShards,
    events: pa.RecordBatch,
    request: Request,
    begin: int,
) -> Answer:
    n_events = events.num_rows
    is_unique = request.deliver == "subscriptions" or len(manifest.shards) == 1
    output = request.output if is_unique else "ids"
    totals = np.zeros(n_events, np.int64)
    places: list[tuple[Int64s, Int64s]] = []  # events, and how many ids each has
    ids: list[pa.Array] = []
    id_type = pa.int64() if manifest.id_type == "bigint" else pa.large_string()
    position = POSITION if request.has_position else None
    for shard in manifest.shards:
        rows = may_match(shard.summary, events, position, manifest.space)
        if rows is not None and not len(rows):
            continue
        part = events if rows is None else events.take(pa.array(rows))
        matcher = shards.get(ref, manifest, shard, request.max_mapped_bytes).matcher
        found = matcher.match_many(
            part,
            deliver=request.deliver,
            output=output,
            position=position,
        )
        counts = found.counts
        if rows is None:
            totals += counts
        else:
            totals[rows] += counts
        if output == "ids" and counts.any():
            numbers = np.arange(n_events, dtype=np.int64) if rows is None else rows
            places.append((numbers, counts))
            ids.append(found.ids)
    if output == "count":
        return Answer(begin, totals, None)
    if not ids:
        return Answer(begin, totals, None if request.output == "count" else pa.array([], id_type))
    if len(ids) == 1:
        return Answer(begin, totals, None if request.output == "count" else ids[0])
    joined = pa.concat_arrays(ids)
    where = np.concatenate([np.repeat(numbers, counts) for numbers, counts in places])
    order = _unique_order(where, joined) if not is_unique else np.argsort(where, kind="stable")
    if not is_unique:
        totals = np.bincount(where[order], minlength=n_events).astype(np.int64)
    if request.output == "count":
        return Answer(begin, totals, None)
    return Answer(begin, totals, joined.take(pa.array(order)))


def _unique_order(places: Int64s, ids: pa.Array) -> Int64s:
    """Each (event, id) once, in the order of events."""
    codes = (
        ids.to_numpy()
        if pa.types.is_integer(ids.type)
        else ids.dictionary_encode().indices.to_numpy()
    )
    order = np.lexsort((codes, places))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(places[order]) != 0) | (np.diff(codes[order]) != 0)
    return np.asarray(order[is_first], dtype=np.int64)
