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
from functools import partial

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

# So many ids an answer should have. Slices are as long as the one before lets expect. Dense events
# may come after sparse ones, so of a long slice every 64th event is counted first; a slice that has
# twice as many ids is given up and made shorter. Calls of 1,024 events each would need no such
# count, but take 9 to 31 % longer than calls of 10,000.
IDS_PER_ANSWER = 1 << 22
_FIRST_SLICE = 64
_MAX_GROWTH = 4
_SAMPLED_FROM = 1024
_SAMPLE_STRIDE = 64


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
    n_found: int  # ids, before those of several shards were made unique


class OpenShards:
    """The shards that this process has mapped, the least recently used first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[OpenShard, int]] = OrderedDict()
        self.n_slice = _FIRST_SLICE  # as far as the events before tell; each sweeps all shards

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
        part = events.slice(begin, shards.n_slice)
        answer = _match_slice(ref, manifest, shards, part, request, begin)
        if answer is None:
            shards.n_slice = max(1, part.num_rows // _MAX_GROWTH)
            continue
        yield answer
        begin += part.num_rows
        n_most = IDS_PER_ANSWER * part.num_rows // max(answer.n_found, 1)
        shards.n_slice = max(1, min(n_most, shards.n_slice * _MAX_GROWTH))


def _match_slice(
    ref: IndexRef,
    manifest: Manifest,
    shards: OpenShards,
    events: pa.RecordBatch,
    request: Request,
    begin: int,
) -> Answer | None:
    """None: these events have too many ids for one answer."""
    n_events = events.num_rows
    is_unique = request.deliver == "subscriptions" or len(manifest.shards) == 1
    output = request.output if is_unique else "ids"
    totals = np.zeros(n_events, np.int64)
    places: list[tuple[Int64s, Int64s]] = []  # events, and how many ids each has
    ids: list[pa.Array] = []
    n_ids = 0
    id_type = pa.int64() if manifest.id_type == "bigint" else pa.large_string()
    position = POSITION if request.has_position else None
    for shard in manifest.shards:
        rows = may_match(shard.summary, events, position, manifest.space)
        if rows is not None and not len(rows):
            continue
        part = events if rows is None else events.take(pa.array(rows))
        matcher = shards.get(ref, manifest, shard, request.max_mapped_bytes).matcher
        match = partial(matcher.match_many, deliver=request.deliver, position=position)
        if output == "ids" and part.num_rows > _SAMPLED_FROM:
            sample = part.take(pa.array(np.arange(0, part.num_rows, _SAMPLE_STRIDE)))
            n_expected = _SAMPLE_STRIDE * int(match(sample, output="count").counts.sum())
            if n_ids + n_expected > 2 * IDS_PER_ANSWER:
                return None
        found = match(part, output=output)
        counts = found.counts
        if rows is None:
            totals += counts
        else:
            totals[rows] += counts
        if output == "ids" and counts.any():
            numbers = np.arange(n_events, dtype=np.int64) if rows is None else rows
            places.append((numbers, counts))
            ids.append(found.ids)
            n_ids += len(found.ids)
            if n_ids > 2 * IDS_PER_ANSWER and n_events > 1:
                return None
    if output == "count":
        return Answer(begin, totals, None, int(totals.sum()))
    if not ids:
        ids = [pa.array([], id_type)]
    joined = ids[0] if len(ids) == 1 else pa.concat_arrays(ids)
    if len(ids) > 1:
        where = np.concatenate([np.repeat(numbers, counts) for numbers, counts in places])
        order = np.argsort(where, kind="stable") if is_unique else _unique_order(where, joined)
        totals = np.bincount(where[order], minlength=n_events).astype(np.int64)
        joined = joined.take(pa.array(order))
    return Answer(begin, totals, None if request.output == "count" else joined, n_ids)


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
