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
from pyspark.sql import types as T

from tamis.errors import ArgumentError
from tamis.spark.events import NUMBERS, TIMES, EventColumn, EventColumns
from tamis.spark.frames import column
from tamis.spark.manifest import Manifest
from tamis.spark.partitioning import shard_by_tree

ROUTES = ("auto", "always", "never")

# One core of a loaded machine of two, 16 November 2026: ranges of 5 million rows of 56 bytes took
# 4.1 s more than no shuffle, ranges of 1,000 rows 0.4 to 0.5 s. An image of 77 MB was mapped and
# searched at 3e9 bytes a second from memory; an index that does not fit comes from a disk, for
# which 1e9 is assumed.
_SHUFFLED_BYTES_PER_S = 6.0e7
_SHUFFLE_S = 0.5
_MAPPED_BYTES_PER_S = 1.0e9
_BYTES_PER_TASK = 128 << 20  # of events, as Spark reads files unless told


def bring_together(
    events: DataFrame,
    manifest: Manifest,
    columns: EventColumns,
    max_mapped_bytes: int | None,
    route: str,
) -> DataFrame:
    """The events, shuffled if that pays or is asked for. No job is run to find out.

    Every task matches every event that it gets: where one goes is a matter of speed alone.
    """
    place = _place(events, manifest, columns)
    if place is None:
        if route == "always":
            raise ArgumentError(
                "route='always' needs an index that was built with partition_by, and a table of "
                "events that have that position or attribute"
            )
        return events
    if route == "never" or (route == "auto" and not _pays(events, manifest, max_mapped_bytes)):
        return events
    id = column(columns.kept[0])
    shard = shard_by_tree(manifest.tree, *place, id)
    n_of_spark = int(events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    n_tasks = max(len(manifest.shards), n_of_spark)
    return events.repartitionByRange(n_tasks, shard, F.xxhash64(id))


def _place(
    events: DataFrame, manifest: Manifest, columns: EventColumns
) -> tuple[Column, Column] | None:
    """Where an event lies among the keys of subscriptions; nulls where it has no place."""
    if events.isStreaming or manifest.tree is None:
        return None
    if manifest.partition_by == "region":
        position = [each.select() for each in columns.columns if each.is_position]
        return (position[0], position[1]) if position else None
    values = [_number(events, each, manifest.partition_by) for each in columns.columns]
    known = [value for value in values if value is not None]
    return (F.coalesce(*known), F.lit(0.0)) if known else None


def _number(events: DataFrame, source: EventColumn, attribute: str) -> Column | None:
    """The attribute's value as the keys have it; None: this column does not have it."""
    value = source.select()
    kind = events.select(value).schema[0].dataType
    if isinstance(kind, T.MapType):
        value, kind = F.try_element_at(value, F.lit(attribute)), kind.valueType
    elif source.name != attribute:
        return None
    if isinstance(kind, TIMES):
        return F.unix_micros(value.cast("timestamp")).cast("double")
    return (value if isinstance(kind, NUMBERS) else F.lit(None)).cast("double")


def _pays(events: DataFrame, manifest: Manifest, max_mapped_bytes: int | None) -> bool:
    n_bytes = sum(shard.n_bytes for shard in manifest.shards)
    if max_mapped_bytes is None or n_bytes <= max_mapped_bytes:
        return False  # everything stays mapped
    # By what Spark's optimizer knows: to ask for the partitions would run what is upstream.
    plan = events._jdf.queryExecution().optimizedPlan()
    n_event_bytes = float(str(plan.stats().sizeInBytes()))
    n_tasks = max(
        events.sparkSession.sparkContext.defaultParallelism, n_event_bytes / _BYTES_PER_TASK
    )
    once_s = n_bytes / _MAPPED_BYTES_PER_S
    return _SHUFFLE_S + n_event_bytes / _SHUFFLED_BYTES_PER_S + once_s < n_tasks * once_s
