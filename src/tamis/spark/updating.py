"""Changes to an index: each shard gets what concerns it, as a piece of its log.

A shard is the directory of a matcher, so its log holds what was subscribed and unsubscribed since
its image was written. An update appends to that log and stores the new bytes alone; when the log
has grown to a quarter of the image, the matcher writes a new image, and the log begins again.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tamis.errors import ArgumentError, ArgumentTypeError, BatchError, StorageError
from tamis.matcher import Matcher
from tamis.spark.building import (
    BUILT_SCHEMA,
    REPEATS,
    BuiltShard,
    Rejected,
    directory_files,
    id_type_of,
    now,
    publish,
    read_rows,
    shard_of,
    sift,
    take,
    with_repeats,
    without_repeats,
)
from tamis.spark.cache import open_shard, private_copy
from tamis.spark.frames import check_frame, fields_of
from tamis.spark.index import IndexRef
from tamis.spark.manifest import File, Manifest, Piece, Shard, Summary
from tamis.spark.partitioning import IS_GOOD, KEYS, shard_by_tree, with_keys
from tamis.spark.store import Store

CHANGES = ("subscribe", "unsubscribe", "move")
_DROP = " lives in another shard now"  # no change that anybody could write
_LIVES_IN = T.StructField("lives_in", T.IntegerType())


def update_index(ref: IndexRef, changes: DataFrame, *, mode: str = "permissive") -> IndexRef:
    """Applies changes to the newest version of an index; gives back the next one.

    The columns of `changes`:

    change      "subscribe" (a new id, or another predicate for one), "unsubscribe" or "move"
    id          of the subscription; each at most once
    predicate, subscriber   of what is subscribed
    x, y, area  the new centre of what is moved; `area` counts from 0 where there are several

    Rows that cannot be taken (a bad predicate, an id that is not there) are treated as `mode` says
    in `build_index`. Only shards that change are written, and of those only what is new.
    """
    if mode not in ("permissive", "failfast"):
        raise ArgumentError(f"mode must be 'permissive' or 'failfast', not {mode!r}")
    check_frame(changes, "changes")
    newest = ref.newest()
    if newest != ref:
        raise StorageError(
            f"{ref.path}: version {ref.version} is not the newest, which is {newest.version}; "
            "apply the changes to ref.newest()"
        )
    old = ref.manifest
    chosen = _choose_columns(changes, old)
    n_shards = len(old.shards)
    if old.partition_by == "id":
        rows = chosen.withColumn("shard", shard_of(F.col("id"), n_shards))
    else:
        rows = _with_places(ref, chosen)
    built = (
        rows.repartitionById(n_shards, F.col("shard"))
        .mapInArrow(ShardUpdater(ref), BUILT_SCHEMA)
        .collect()
    )
    manifest = dataclasses.replace(old, version=ref.version + 1, created=now())
    return publish(
        ref.store,
        manifest,
        dict(enumerate(old.shards)),
        [BuiltShard.from_row(row) for row in built],
        n_shards,
        mode,
    )


def _with_places(ref: IndexRef, changes: DataFrame) -> DataFrame:
    """Where each change belongs, if subscriptions are not spread by id: where the id lives now.

    A new predicate may belong to another shard; then the old one has to be dropped where it was.
    """
    manifest = ref.manifest
    numbers = changes.sparkSession.range(len(manifest.shards)).select(
        F.col("id").cast("int").alias("shard")
    )
    ids = changes.select("id").where(F.col("id").isNotNull()).distinct()
    found = (
        ids.crossJoin(numbers)
        .repartitionById(len(manifest.shards), F.col("shard"))
        .mapInArrow(ShardSearcher(ref), T.StructType([ids.schema["id"], _LIVES_IN]))
    )
    keyed = with_keys(with_repeats(changes), manifest.partition_by).join(found, "id", "left")
    is_new = F.col("change") == "subscribe"
    target = shard_by_tree(manifest.tree, F.col(KEYS[0]), F.col(KEYS[1]), F.col("id"))
    here = F.coalesce(F.col("lives_in"), F.lit(0))
    placed = keyed.withColumn("shard", F.when(is_new, target).otherwise(here))
    left = placed.where(
        is_new & F.col(IS_GOOD) & (F.col("lives_in") != F.col("shard")) & (F.col(REPEATS) == 1)
    )
    left = left.withColumn("change", F.lit(_DROP)).withColumn("shard", F.col("lives_in"))
    names = [*changes.columns, REPEATS, "shard"]
    return placed.select(names).unionByName(left.select(names))


@dataclass(frozen=True)
class ShardSearcher:
    """Runs in a task that looks for ids in one shard."""

    ref: IndexRef

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            number = batch.column("shard")[0].as_py()
            opened = open_shard(self.ref.store, self.ref.manifest, self.ref.manifest.shards[number])
            try:
                ids = [id for id in batch.column("id").to_pylist() if id in opened.matcher]
            finally:
                opened.close()
            found = pa.array(ids, batch.column("id").type)
            yield pa.record_batch(
                [found, pa.array([number] * len(ids), pa.int32())], names=["id", "lives_in"]
            )


def _choose_columns(changes: DataFrame, manifest: Manifest) -> DataFrame:
    fields = fields_of(changes)
    kinds = {
        "change": "string",
        "id": manifest.id_type,
        "predicate": "string",
        "subscriber": manifest.id_type,
        "x": "double",
        "y": "double",
        "area": "int",
    }
    for name in ("change", "id"):
        if name not in fields:
            raise ArgumentError(f"changes must have a column {name}; there are {', '.join(fields)}")
    for name in fields:
        if name not in kinds:
            raise ArgumentError(
                f"changes must have the columns {', '.join(kinds)}, and has {name}; select those"
            )
    if id_type_of("id", fields["id"]) != manifest.id_type:
        raise ArgumentTypeError(
            f"column id must hold {manifest.id_type}, as the index does, not "
            f"{fields['id'].simpleString()}"
        )
    numbers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
    for name in ("x", "y", "area"):
        if name in fields and not isinstance(fields[name], numbers):
            raise ArgumentTypeError(
                f"column {name} must hold numbers, not {fields[name].simpleString()}"
            )
    return changes.select(
        [
            (F.col(name) if name in fields else F.lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        ]
    )


@dataclass(frozen=True)
class ShardUpdater:
    """Runs in a task that gets the changes of one shard."""

    ref: IndexRef

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = read_rows(batches)
        if rows is None:
            return
        number = rows.column("shard")[0].as_py()
        manifest, store = self.ref.manifest, self.ref.store
        shard = manifest.shards[number]
        with private_copy(store, shard) as directory:
            rejected = Rejected()
            matcher = Matcher.open(
                directory,
                engine=manifest.engine,
                parameters=manifest.parameters,
                threads=1,
                sync="none",
            )
            with matcher:
                _apply(matcher, rows, rejected)
                summary = Summary.of(matcher._summary())
                n_subscriptions = len(matcher)
            files = _new_files(store, shard, directory)
        changed = Shard(files, n_subscriptions, summary)
        built = BuiltShard(number, changed, rejected.put(store), len(rejected), rejected.shown())
        yield built.to_batch()


def _apply(matcher: Matcher, rows: pa.Table, rejected: Rejected) -> None:
    rows, repeated = without_repeats(rows)
    good, bad = sift(rows, ("change", "id"))
    rejected.extend(repeated)
    rejected.extend(bad)
    known = pc.is_in(good.column("change"), value_set=pa.array([*CHANGES, _DROP]))
    unknown = good.filter(pc.invert(known))
    rejected.add(unknown, [f"change must be {', '.join(CHANGES)}"] * len(unknown))

    def of(change: str) -> pa.Table:
        return good.filter(pc.equal(good.column("change"), change))

    dropped = of(_DROP).column("id").to_pylist()
    if dropped:
        matcher.unsubscribe_many(dropped)
    gone = _present(matcher, of("unsubscribe"), rejected)
    if gone.num_rows:
        matcher.unsubscribe_many(gone.column("id").to_pylist())
    moved = _present(matcher, of("move"), rejected)
    _move(matcher, moved, rejected)
    new = of("subscribe")
    for has_subscriber in (True, False):
        is_given = pc.is_valid(new.column("subscriber"))
        part = new.filter(is_given if has_subscriber else pc.invert(is_given))
        names = ["id", "predicate", "subscriber"][: 3 if has_subscriber else 2]
        whole, bad = sift(part, names)
        rejected.extend(bad)
        take(matcher, whole, rejected, names)


def _present(matcher: Matcher, rows: pa.Table, rejected: Rejected) -> pa.Table:
    """The rows whose subscription is there."""
    is_there = pa.array([id in matcher for id in rows.column("id").to_pylist()], pa.bool_())
    lost = rows.filter(pc.invert(is_there))
    rejected.add(lost, ["no subscription has this id"] * len(lost))
    return rows.filter(is_there)


def _move(matcher: Matcher, rows: pa.Table, rejected: Rejected) -> None:
    """Moves row by row where one of them cannot be moved."""
    for has_area in (True, False):
        is_given = pc.is_valid(rows.column("area"))
        part = rows.filter(is_given if has_area else pc.invert(is_given))
        names = ["id", "x", "y", "area"][: 4 if has_area else 3]
        whole, bad = sift(part, names)
        rejected.extend(bad)
        if not whole.num_rows:
            continue
        moves = whole.select(names)
        try:
            matcher.move_many(moves)
        except BatchError:
            for at, row in enumerate(moves.to_pylist()):
                try:
                    matcher.move(**row)
                except (ArgumentError, ArgumentTypeError) as error:
                    rejected.add(whole.slice(at, 1), [str(error)])


def _new_files(store: Store, old: Shard, directory: Path) -> tuple[File, ...]:
    """The directory's files; what the store has already is not written again.

    An image never changes under its name, and a log only grows: what is new is its end.
    """
    known = {file.name: file for file in old.files}
    files = []
    for path in directory_files(directory):
        n_bytes = os.path.getsize(path)
        before = known.get(path.name)
        if path.name == "MANIFEST" or before is None:
            files.append(File(path.name, (Piece(store.put_file(path), n_bytes),)))
        elif before.n_bytes == n_bytes:
            files.append(before)
        else:
            piece = Piece(store.put_file(path, before.n_bytes), n_bytes - before.n_bytes)
            files.append(File(path.name, (*before.pieces, piece)))
    return tuple(files)
