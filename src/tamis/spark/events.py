"""Which columns of a DataFrame are attributes of events, checked against the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import types as T

from tamis.errors import ArgumentError, ArgumentTypeError
from tamis.spark.frames import column
from tamis.spark.manifest import Attribute, Manifest
from tamis.spark.worker import POSITION

NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)


@dataclass(frozen=True)
class EventColumn:
    """A column that goes to the workers."""

    name: str  # the engine's: of an attribute, of a position, or any for a map
    path: tuple[str, ...]  # where it is: a column, and fields of structs within
    is_position: bool = False
    is_map: bool = False

    def select(self) -> Column:
        found = column(*self.path)
        return found.cast("double") if self.is_position else found

    def take(self, table: pa.RecordBatch) -> pa.Array:
        column = table.column(self.path[0])
        for part in self.path[1:]:
            column = pc.struct_field(column, part)
        return column.cast(pa.float64()) if self.is_position else column


@dataclass(frozen=True)
class EventColumns:
    """What goes to the workers: kept columns, which the result has too, and the events' own.

    On the way they are called k0, k1, … and e0, e1, …, so that no names clash.
    """

    kept: tuple[str, ...]
    columns: tuple[EventColumn, ...]
    has_position: bool

    def select(self) -> list[Column]:
        return [
            *(column(name).alias(f"k{place}") for place, name in enumerate(self.kept)),
            *(each.select().alias(f"e{place}") for place, each in enumerate(self.columns)),
        ]

    def take(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The same of a table of Arrow."""
        arrays = [table.column(name) for name in self.kept]
        arrays += [each.take(table) for each in self.columns]
        names = [f"k{place}" for place in range(len(self.kept))]
        return pa.record_batch(arrays, names=[*names, *(each.name for each in self.columns)])

    def sources(self) -> list[str]:
        """The columns of the table that are read."""
        return list(dict.fromkeys([*self.kept, *(each.path[0] for each in self.columns)]))

    def maps(self) -> list[str]:
        """Those of them that hold attributes by name, and that the result has not."""
        names = (each.path[0] for each in self.columns if each.is_map)
        return [name for name in names if name not in self.kept]

    def events(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch that was selected as events for the engine."""
        arrays = batch.columns[len(self.kept) :]
        if not arrays:  # no attribute matters, but predicates such as TRUE match
            return pa.record_batch([pa.nulls(batch.num_rows)], names=[""])
        return pa.record_batch(arrays, names=[each.name for each in self.columns])

    def kept_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        columns: list[pa.Array] = batch.columns[: len(self.kept)]
        return columns


def choose_events(
    schema: T.StructType,
    manifest: Manifest,
    *,
    kept: Sequence[str],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    attrs: str | Sequence[str] | None = None,
    position: tuple[str, str] | None = None,
) -> EventColumns:
    """What goes to the workers: of the attributes only those that a subscription mentions."""
    fields = {field.name: field.dataType for field in schema.fields}
    for name in kept:
        _need_column("id and keep", name, fields)
    maps = [attrs] if isinstance(attrs, str) else list(attrs or ())
    chosen: list[EventColumn] = []
    mentioned = manifest.summary.attributes
    for name, (path, kind) in _attributes(fields, columns, maps, kept).items():
        attribute = mentioned.get(name)
        if attribute is not None:
            _check_kind(name, ".".join(path), kind, attribute, is_asked_for=columns is not None)
            if _kind_of(kind) is not None:
                chosen.append(EventColumn(name, path))
    for name in maps:
        _need_column("attrs", name, fields)
        _check_map(name, fields[name])
        chosen.append(EventColumn(f" map {name}", (name,), is_map=True))
    if position is not None:
        _check_position(position, fields)
        for inner, name in zip(POSITION, position, strict=True):
            chosen.append(EventColumn(inner, (name,), is_position=True))
    if position is None and manifest.summary.n_with_area == manifest.summary.n_filters > 0:
        raise ArgumentError(
            "position must name the columns with the position of an event, such as "
            "position=('lon', 'lat'): every subscription of this index asks for a place"
        )
    return EventColumns(tuple(kept), tuple(chosen), position is not None)


def _attributes(
    fields: Mapping[str, T.DataType],
    columns: Sequence[str] | Mapping[str, str] | None,
    maps: Sequence[str],
    kept: Sequence[str],
) -> dict[str, tuple[tuple[str, ...], T.DataType]]:
    """By their names: where each is, and its type."""
    if isinstance(columns, str):
        raise ArgumentTypeError(f"columns must be a list of names, not the text {columns!r}")
    if columns is None:
        if maps:
            return {}
        # The id of an event is what it is called, not what it is like; other columns that are kept
        # may well be both.
        return {name: ((name,), kind) for name, kind in fields.items() if name not in kept[:1]}
    pairs = columns.items() if isinstance(columns, Mapping) else ((name, name) for name in columns)
    found: dict[str, tuple[tuple[str, ...], T.DataType]] = {}
    for attribute, name in pairs:
        if name in fields:
            found[attribute] = ((name,), fields[name])
        else:
            found[attribute] = (tuple(name.split(".")), _nested(name, fields))
    return found


def _nested(name: str, fields: Mapping[str, T.DataType]) -> T.DataType:
    """The type of a field of a struct, such as data.temp."""
    first, *rest = name.split(".")
    kind = fields.get(first)
    for part in rest:
        inner = {f.name: f.dataType for f in kind.fields} if isinstance(kind, T.StructType) else {}
        kind = inner.get(part)
    if kind is None:
        _need_column("columns", name, fields)
    assert kind is not None
    return kind


def _need_column(argument: str, name: str, fields: Mapping[str, T.DataType]) -> None:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"{argument} must name columns, not be {name!r}")
    if name not in fields:
        raise ArgumentError(
            f"{argument} must name columns of the events, and there is no {name!r}; there are "
            f"{', '.join(fields)}"
        )


def _kind_of(kind: T.DataType) -> str | None:
    if isinstance(kind, (*NUMBERS, *TIMES)):
        return "numbers"
    if isinstance(kind, T.StringType):
        return "strings"
    if isinstance(kind, T.BooleanType):
        return "booleans"
    return None


def _check_kind(
    name: str, column: str, kind: T.DataType, attribute: Attribute, *, is_asked_for: bool
) -> None:
    found = _kind_of(kind)
    if found is None:
        hint = "; cast it to double" if isinstance(kind, T.DecimalType) else ""
        if not is_asked_for and not isinstance(kind, T.DecimalType):
            return
        raise ArgumentTypeError(
            f"attribute {name}: column {column} must hold numbers, strings, booleans or times, "
            f"not {kind.simpleString()}{hint}"
        )
    accepted = [each for each in ("numbers", "strings", "booleans") if getattr(attribute, each)]
    if accepted and found not in accepted:
        raise ArgumentTypeError(
            f"attribute {name}: column {column} must hold {' or '.join(accepted)}, which is what "
            f"the subscriptions compare it with, not {kind.simpleString()}: nothing could match. "
            "Cast it, or leave it out with columns="
        )


def _check_map(name: str, kind: T.DataType) -> None:
    if (
        not isinstance(kind, T.MapType)
        or not isinstance(kind.keyType, T.StringType)
        or _kind_of(kind.valueType) is None
    ):
        raise ArgumentTypeError(
            f"attrs: column {name} must be a map of strings to numbers, strings, booleans or "
            f"times, not {kind.simpleString()}"
        )


def _check_position(position: tuple[str, str], fields: Mapping[str, T.DataType]) -> None:
    if isinstance(position, str) or len(position) != 2:
        raise ArgumentError(f"position must be two names of columns, not {position!r}")
    for name in position:
        _need_column("position", name, fields)
        if not isinstance(fields[name], NUMBERS):
            raise ArgumentTypeError(
                f"position: column {name} must hold numbers, not {fields[name].simpleString()}"
            )
