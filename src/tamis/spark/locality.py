"""Events that concern the same shards in the same tasks, where a worker cannot map all shards.

Every task can match every event: it maps the shards that its events concern. Where those are all
shards, each sweep reads the whole index. Bringing neighbours together first costs a shuffle of the
events and spares most of that:

    sweep     tasks × bytes of the index that do not fit
    route     bytes of the events through the shuffle + bytes of the index, once

Partitions have equal numbers of events, so a place where everything happens is spread over as many
tasks as it needs; only their shards are the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tamis.errors import ArgumentError
from tamis.spark.frames import column
from tamis.spark.manifest import Manifest
from tamis.spark.partitioning import shard_by_tree

ROUTES = ("auto", "always", "never")

# Assumed, for one core: page faults of a mapped image, and rows that a shuffle writes and reads.
# Only their ratio decides, and only where an index does not fit.
_MAPPED_BYTES_PER_S = 1.0e9
_SHUFFLED_BYTES_PER_S = 1.0e8


def bring_together(
    events: DataFrame,
    manifest: Manifest,
    id: str,
    position: tuple[str, str] | None,
    max_mapped_bytes: int | None,
    route: str,
) -> DataFrame:
    """The events, shuffled if that pays or is asked for."""
    place = _place(events, manifest, position)
    if place is None:
        if route == "always":
            raise ArgumentError(
                "route='always' needs an index that was built with partition_by, and events that "
                "have that position or attribute"
            )
        return events
    if route == "never" or (route == "auto" and not _pays(events, manifest, max_mapped_bytes)):
        return events
    shard = shard_by_tree(manifest.tree, *place, column(id))
    n_tasks = max(len(manifest.shards), _n_partitions(events))
    return events.repartitionByRange(n_tasks, shard, F.xxhash64(column(id)))


def _place(
    events: DataFrame, manifest: Manifest, position: tuple[str, str] | None
) -> tuple[Column, Column] | None:
    """Where an event lies among the keys of subscriptions."""
    if events.isStreaming or manifest.tree is None:
        return None
    if manifest.partition_by == "region":
        if position is None:
            return None
        return column(position[0]).cast("double"), column(position[1]).cast("double")
    if manifest.partition_by not in events.columns:
        return None
    return column(manifest.partition_by).cast("double"), F.lit(0.0)


def _pays(events: DataFrame, manifest: Manifest, max_mapped_bytes: int | None) -> bool:
    n_bytes = sum(shard.n_bytes for shard in manifest.shards)
    if max_mapped_bytes is None or n_bytes <= max_mapped_bytes:
        return False  # everything stays mapped
    sweep_s = _n_partitions(events) * n_bytes / _MAPPED_BYTES_PER_S
    plan = events._jdf.queryExecution().optimizedPlan()
    n_event_bytes = float(plan.stats().sizeInBytes().toString())
    return n_event_bytes / _SHUFFLED_BYTES_PER_S + n_bytes / _MAPPED_BYTES_PER_S < sweep_s


def _n_partitions(events: DataFrame) -> int:
    return int(events._jdf.queryExecution().toRdd().getNumPartitions())
