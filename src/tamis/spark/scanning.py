"""`spark.read.format("tamis")`: Parquet files of events in, matches out.

Tasks read row groups natively, only the columns that some subscription mentions, match them, and
hand matches alone to the JVM. With `mapInArrow` every event crosses from the JVM to Python, which
costs more than matching it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from tamis.errors import ArgumentError
from tamis.spark.frames import arrow_schema_of
from tamis.spark.index import IndexRef
from tamis.spark.matching import EventMatcher, Wanted
from tamis.spark.parquetfiles import ParquetFiles
from tamis.spark.store import absolute_uri

_ROWS_PER_TASK = 1_000_000
# Of the table function `tamis_match`, too.
ARGUMENTS = (
    "index",
    "version",
    "id",
    "columns",
    "attrs",
    "position",
    "output",
    "deliver",
    "keep",
    "max_mapped_bytes",
)
_OPTIONS = ("path", *ARGUMENTS, "rows_per_task")


@dataclass(frozen=True)
class _Plan:
    matcher: EventMatcher
    schema: T.StructType  # of the matches
    files: ParquetFiles
    events: pa.Schema


class TamisSource(DataSource):
    """The data source `tamis`.

    path      a Parquet file of events, or a folder of such; folders within that are called
              column=value give the events that column, as Spark writes and reads them
    index     the index, in its newest version or in that of the option `version`
    id, columns, attrs, position, output, deliver, keep, max_mapped_bytes   as of `match`; several
              names have commas between, and `columns` may say attribute=column
    rows_per_task   about so many events are a task
    """

    @classmethod
    def name(cls) -> str:
        return "tamis"

    def schema(self) -> T.StructType:
        return _nullable(self._plan().schema)

    def reader(self, schema: T.StructType) -> DataSourceReader:
        plan = self._plan()
        rows_per_task = self._number("rows_per_task") or _ROWS_PER_TASK
        return _Reader(
            plan.matcher, plan.files, plan.events, rows_per_task, arrow_schema_of(schema)
        )

    def _plan(self) -> _Plan:
        for name in self.options:
            if name.lower() not in _OPTIONS:
                raise ArgumentError(
                    f"the format tamis has no option {name!r}; it has {', '.join(_OPTIONS)}"
                )
        for name in ("path", "index", "id"):
            if not self.options.get(name):
                raise ArgumentError(f"the format tamis needs the option {name!r}")
        ref = IndexRef.open(self.options["index"], self._number("version"))
        wanted = wanted_from_texts(self.options)
        wanted.check(ref)
        files = ParquetFiles(absolute_uri(self.options["path"]))
        events = files.schema()
        matcher, schema = wanted.plan(ref, from_arrow_schema(events))
        return _Plan(matcher, schema, files, events)

    def _number(self, name: str) -> int | None:
        return number_from_text(name, self.options.get(name))


def _nullable(schema: T.StructType) -> T.StructType:
    """Spark compares what is read with the schema, and batches of Arrow allow nulls everywhere."""

    def of(kind: T.DataType) -> T.DataType:
        return T.ArrayType(kind.elementType, True) if isinstance(kind, T.ArrayType) else kind

    return T.StructType([T.StructField(f.name, of(f.dataType), True) for f in schema.fields])


def wanted_from_texts(options: Mapping[str, str]) -> Wanted:
    """The arguments of `match`, where each is a text."""

    def names(name: str) -> list[str] | None:
        text = options.get(name)
        return [part.strip() for part in text.split(",")] if text else None

    columns: Any = names("columns")
    if columns is not None and any("=" in part for part in columns):
        pairs = (part.partition("=") for part in columns)
        columns = {name.strip(): (column or name).strip() for name, _, column in pairs}
    position = names("position")
    if position is not None and len(position) != 2:
        raise ArgumentError(f"position must be two names of columns, not {options['position']!r}")
    return Wanted(
        options["id"],
        columns,
        names("attrs"),
        None if position is None else (position[0], position[1]),
        options.get("output", "pairs"),
        options.get("deliver", "subscriptions"),
        names("keep") or (),
        number_from_text("max_mapped_bytes", options.get("max_mapped_bytes")),
    )


def number_from_text(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"{name} must be an integer from 1 on, not {text!r}")
    return int(text)


@dataclass
class _Part(InputPartition):
    """Row groups, by the files that have them: small files share a task."""

    groups: dict[str, list[int]] = field(default_factory=dict)
    n_rows: int = 0


class _Reader(DataSourceReader):
    def __init__(
        self,
        matcher: EventMatcher,
        files: ParquetFiles,
        events: pa.Schema,
        rows_per_task: int,
        schema: pa.Schema,
    ) -> None:
        self._matcher, self._files, self._events = matcher, files, events
        self._rows_per_task, self._schema = rows_per_task, schema

    def partitions(self) -> Sequence[InputPartition]:
        parts = [_Part()]
        for path in self._files.paths():
            with self._files.open(path) as file:
                sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
            for group, n_rows in enumerate(sizes):
                if parts[-1].n_rows >= self._rows_per_task:
                    parts.append(_Part())
                parts[-1].groups.setdefault(path, []).append(group)
                parts[-1].n_rows += n_rows
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        columns = self._matcher.columns
        # Batches with dictionaries cannot be joined for a sweep.
        is_swept = self._matcher.request.max_mapped_bytes is not None
        maps = () if is_swept else columns.maps()
        batches = (
            columns.take(batch)
            for path, groups in partition.groups.items()
            for batch in self._files.read(path, groups, columns.sources(), self._events, maps)
        )
        for found in self._matcher(batches):
            yield found.cast(self._schema)
