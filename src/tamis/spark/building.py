"""Subscriptions as a DataFrame become an index: shards are built side by side on the executors."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tamis.errors import (
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    LanguageError,
    TamisError,
)
from tamis.matcher import Matcher
from tamis.spark.cache import scratch_folder
from tamis.spark.frames import check_frame, column, fields_of
from tamis.spark.index import REJECTED_SCHEMA, IndexRef, hash_of
from tamis.spark.manifest import File, Manifest, Piece, Shard, Summary
from tamis.spark.partitioning import IS_GOOD, KEYS, grow_tree, shard_by_tree, with_keys
from tamis.spark.store import Store, absolute_uri

# Matching several shards costs more than one, and so does building on one core alone.
SUBSCRIPTIONS_PER_SHARD = 500_000
_MAX_SHOWN = 5
REPEATS = "n_same"
_REPEATED = "the id must stand once in the table"

BUILT_SCHEMA = "shard int, built string, reasons array<string>"
_BUILT = pa.schema(
    [("shard", pa.int32()), ("built", pa.string()), ("reasons", pa.list_(pa.string()))]
)


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    id: str = "id",
    predicate: str = "predicate",
    subscriber: str | None = None,
    engine: str = "auto",
    parameters: Mapping[str, float] | None = None,
    space: str = "plane",
    n_shards: int | None = None,
    partition_by: str = "id",
    mode: str = "permissive",
) -> IndexRef:
    """Builds an index of subscriptions and gives back its first version, or the next one.

    id, predicate, subscriber  the columns; `subscriber` is one called so, if there is one
    engine, parameters, space  as of `tamis.Matcher`
    n_shards   into how many parts; by default one for each half million subscriptions
    partition_by   "id"; "region": subscriptions with a place (`NEAR`) live with their neighbours,
               so that an event concerns few shards; or the name of an attribute that most of them
               compare with numbers, for the same. The first shards have what has no such place or
               number.
    mode       "permissive": rows that cannot be taken are in `ref.rejected(spark)`, with the
               reason; "failfast": one such row is a `BatchError`, and there is no new version

    Ids must be different: rows that share one are all rejected, since a table has no order that
    could say which is meant.
    """
    if mode not in ("permissive", "failfast"):
        raise ArgumentError(f"mode must be 'permissive' or 'failfast', not {mode!r}")
    check_frame(subscriptions, "subscriptions")
    uri = absolute_uri(path)
    store = Store(uri)
    Matcher(engine=engine, space=space, parameters=parameters).close()  # bad ones fail here
    chosen, id_type = choose_columns(subscriptions, id, predicate, subscriber)
    if n_shards is None:
        n_shards = max(1, -(-chosen.count() // SUBSCRIPTIONS_PER_SHARD))
    if not isinstance(partition_by, str):
        raise ArgumentTypeError(
            f"partition_by must be 'id', 'region' or an attribute, not {partition_by!r}"
        )
    if not isinstance(n_shards, int) or n_shards < 1:
        raise ArgumentError(f"n_shards must be an integer from 1 on, not {n_shards!r}")
    manifest = Manifest(
        version=(store.versions() or [0])[-1] + 1,
        space=space,
        engine=engine,
        parameters=dict(parameters or {}),
        id_type=id_type,
        partition_by=partition_by,
        created=now(),
        shards=(),
    )
    with ExitStack() as afterwards:
        if partition_by == "id":
            shards = chosen.withColumn("shard", shard_of(F.col("id"), n_shards))
        else:
            keyed = with_keys(with_repeats(chosen), partition_by).persist()
            afterwards.callback(keyed.unpersist)
            manifest = dataclasses.replace(manifest, tree=grow_tree(keyed, n_shards))
            shard = shard_by_tree(manifest.tree, F.col(KEYS[0]), F.col(KEYS[1]), F.col("id"))
            shards = keyed.withColumn("shard", shard).drop(*KEYS, IS_GOOD)
        built = (
            shards.repartitionById(n_shards, F.col("shard"))
            .mapInArrow(ShardBuilder(uri, manifest), BUILT_SCHEMA)
            .collect()
        )
    return publish(store, manifest, {}, [BuiltShard.from_row(row) for row in built], n_shards, mode)


def choose_columns(
    frame: DataFrame, id: str, predicate: str, subscriber: str | None
) -> tuple[DataFrame, str]:
    """The columns id, predicate and, if there is one, subscriber, and the type of ids."""
    fields = fields_of(frame)
    if subscriber is None and "subscriber" in fields:
        subscriber = "subscriber"
    for argument, name in (("id", id), ("predicate", predicate), ("subscriber", subscriber)):
        if name is not None and name not in fields:
            raise ArgumentError(
                f"{argument} must be a column of the subscriptions, not {name!r}; there are "
                f"{', '.join(fields)}"
            )
    if not isinstance(fields[predicate], T.StringType):
        raise ArgumentTypeError(
            f"column {predicate} must hold strings, not {fields[predicate].simpleString()}"
        )
    id_type = id_type_of(id, fields[id])
    columns = [
        column(id).cast(id_type).alias("id"),
        column(predicate).alias("predicate"),
    ]
    if subscriber is not None:
        if id_type_of(subscriber, fields[subscriber]) != id_type:
            raise ArgumentTypeError(
                f"ids and subscribers must be of one type, and {id} is "
                f"{fields[id].simpleString()} where {subscriber} is "
                f"{fields[subscriber].simpleString()}; cast one of them"
            )
        columns.append(column(subscriber).cast(id_type).alias("subscriber"))
    return frame.select(columns), id_type


def id_type_of(name: str, kind: T.DataType) -> str:
    if isinstance(kind, T.ByteType | T.ShortType | T.IntegerType | T.LongType):
        return "bigint"
    if isinstance(kind, T.StringType):
        return "string"
    raise ArgumentTypeError(
        f"column {name} must hold integers or strings, not {kind.simpleString()}"
    )


def shard_of(id: Any, n_shards: int) -> Any:
    """Where a subscription lives: by its id alone, so that a change of it finds it."""
    return F.pmod(F.xxhash64(id), F.lit(n_shards)).cast("int")


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class BuiltShard:
    """What a task has built: a shard, and a table of what it did not take."""

    number: int
    shard: Shard
    rejected: Piece | None
    n_rejected: int
    reasons: list[str]  # of the first few

    def to_batch(self) -> pa.RecordBatch:
        built = {
            "shard": asdict(self.shard),
            "rejected": None if self.rejected is None else asdict(self.rejected),
            "n_rejected": self.n_rejected,
        }
        return pa.record_batch(
            [pa.array([self.number], pa.int32()), [json.dumps(built)], [self.reasons]],
            schema=_BUILT,
        )

    @classmethod
    def from_row(cls, row: Any) -> BuiltShard:
        built = json.loads(row["built"])
        rejected = None if built["rejected"] is None else Piece(**built["rejected"])
        shard = Shard.from_dict(built["shard"])
        return cls(row["shard"], shard, rejected, built["n_rejected"], list(row["reasons"]))


def publish(
    store: Store,
    manifest: Manifest,
    old_shards: Mapping[int, Shard],
    built: list[BuiltShard],
    n_shards: int,
    mode: str,
) -> IndexRef:
    """Writes the manifest of a version whose shards are there. Failfast: not with bad rows."""
    n_rejected = sum(each.n_rejected for each in built)
    if mode == "failfast" and n_rejected:
        reasons = [reason for each in built for reason in each.reasons][:_MAX_SHOWN]
        shown = "\n".join(reasons)
        more = f"\nand {n_rejected - len(reasons)} more" if n_rejected > len(reasons) else ""
        raise BatchError(f"{n_rejected} rows cannot be taken, so none was:\n{shown}{more}", [])
    shards = {**old_shards, **{each.number: each.shard for each in built}}
    for number in range(n_shards):
        if number not in shards:  # nobody's id falls there
            with new_matcher(manifest) as matcher:
                shards[number] = built_shard(store, number, matcher, Rejected()).shard
    whole = dataclasses.replace(
        manifest,
        shards=tuple(shards[number] for number in range(n_shards)),
        rejected=tuple(each.rejected for each in built if each.rejected is not None),
        n_rejected=n_rejected,
    )
    data = whole.to_json()
    store.write_version(whole.version, data)
    return IndexRef(store.uri, whole.version, hash_of(data))


@dataclass(frozen=True)
class ShardBuilder:
    """Runs in a task that gets the subscriptions of one shard."""

    uri: str
    manifest: Manifest

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = read_rows(batches)
        if rows is None:
            return
        number = rows.column("shard")[0].as_py()
        rows, repeated = without_repeats(rows.drop_columns(["shard"]))
        rows, rejected = sift(rows)
        rejected.extend(repeated)
        store = Store(self.uri)
        with new_matcher(self.manifest) as matcher:
            take(matcher, rows, rejected)
            yield built_shard(store, number, matcher, rejected).to_batch()


def with_repeats(frame: DataFrame) -> DataFrame:
    """Adds how often an id stands in the table. Spread by id, a shard sees that for itself."""
    return frame.withColumn(REPEATS, F.count(F.lit(1)).over(Window.partitionBy("id")))


def without_repeats(rows: pa.Table) -> tuple[pa.Table, Rejected]:
    """Rows whose id stands once, as far as `with_repeats` has counted, and the others."""
    rejected = Rejected()
    if REPEATS not in rows.column_names:
        return rows, rejected
    is_repeated = pc.and_(pc.greater(rows.column(REPEATS), 1), pc.is_valid(rows.column("id")))
    rows = rows.drop_columns([REPEATS])
    bad = rows.filter(is_repeated)
    rejected.add(bad, [_REPEATED] * len(bad))
    return rows.filter(pc.invert(is_repeated)), rejected


def read_rows(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """All rows of a task; None: there are none."""
    found = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(found) if found else None


def new_matcher(manifest: Manifest) -> Matcher:
    return Matcher(
        engine=manifest.engine, space=manifest.space, parameters=manifest.parameters, threads=1
    )


class Rejected:
    """Rows that are not taken, each with the reason."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def add(
        self, rows: pa.Table, reasons: list[str], offsets: list[int | None] | None = None
    ) -> None:
        """Rows with any of the columns that the table of rejected rows has."""
        if reasons:
            given = {name: rows.column(name) for name in rows.column_names}
            given["reason"] = pa.array(reasons)
            given["offset"] = pa.array(offsets or [None] * len(rows))
            columns = [
                given[field.name].cast(field.type)
                if field.name in given
                else pa.nulls(len(rows), field.type)
                for field in REJECTED_SCHEMA
            ]
            self._tables.append(pa.table(columns, schema=REJECTED_SCHEMA))

    def extend(self, other: Rejected) -> None:
        self._tables += other._tables

    def __len__(self) -> int:
        return sum(table.num_rows for table in self._tables)

    def shown(self) -> list[str]:
        """The first few, for people."""
        table = pa.concat_tables([REJECTED_SCHEMA.empty_table(), *self._tables])
        rows = table.slice(0, _MAX_SHOWN).to_pylist()
        return [
            f"id {row['id']}: {row['reason']}"
            if row["id"] is not None
            else f"no id, predicate {row['predicate']}: {row['reason']}"
            for row in rows
        ]

    def put(self, store: Store) -> Piece | None:
        if not self._tables:
            return None
        file = io.BytesIO()
        pq.write_table(pa.concat_tables(self._tables), file)
        data = file.getvalue()
        return Piece(store.put_bytes(data), len(data))


def sift(rows: pa.Table, needed: Sequence[str] | None = None) -> tuple[pa.Table, Rejected]:
    """The rows that have an id of their own and no null in a column that is needed; the others."""
    rejected = Rejected()
    for name in rows.column_names if needed is None else needed:
        is_null = pc.is_null(rows.column(name))
        bad = rows.filter(is_null)
        rejected.add(bad, [f"column {name} must have no nulls"] * len(bad))
        rows = rows.filter(pc.invert(is_null))
    counts = rows.column("id").value_counts()
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(repeated):
        is_repeated = pc.is_in(rows.column("id"), value_set=repeated)
        bad = rows.filter(is_repeated)
        rejected.add(bad, [_REPEATED] * len(bad))
        rows = rows.filter(pc.invert(is_repeated))
    return rows, rejected


def take(
    matcher: Matcher, rows: pa.Table, rejected: Rejected, names: Sequence[str] | None = None
) -> None:
    """Subscribes all rows that can be: in one call if they are good, else without the bad ones.

    names   of the columns of a subscription, if there are others
    """
    if not rows.num_rows:
        return

    def subscribe(some: pa.Table) -> None:
        matcher.subscribe_many(some if names is None else some.select(names))

    try:
        subscribe(rows)
        return
    except BatchError:
        pass
    probe = Matcher(engine="naive", space=matcher.space, threads=1)
    is_good, reasons = [], []
    offsets: list[int | None] = []
    for text in rows.column("predicate").to_pylist():
        try:
            probe.subscribe(0, text)
            is_good.append(True)
        except LanguageError as error:
            is_good.append(False)
            reasons.append(error.reason)
            offsets.append(error.offset)
        except TamisError as error:
            is_good.append(False)
            reasons.append(str(error))
            offsets.append(None)
    mask = pa.array(is_good)
    rejected.add(rows.filter(pc.invert(mask)), reasons, offsets)
    good = rows.filter(mask)
    if good.num_rows:
        subscribe(good)


def built_shard(store: Store, number: int, matcher: Matcher, rejected: Rejected) -> BuiltShard:
    """Stores a matcher's image and what was rejected."""
    with scratch_folder() as folder:
        matcher.save(folder / "shard")
        files = tuple(
            File(path.name, (Piece(store.put_file(path), path.stat().st_size),))
            for path in directory_files(folder / "shard")
        )
    shard = Shard(files, len(matcher), Summary.of(matcher._summary()))
    return BuiltShard(number, shard, rejected.put(store), len(rejected), rejected.shown())


def directory_files(directory: Path) -> list[Path]:
    """What a matcher's directory consists of; the lock belongs to a process."""
    return sorted(path for path in directory.iterdir() if path.is_file() and path.name != "LOCK")
