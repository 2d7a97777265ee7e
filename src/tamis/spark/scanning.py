"""`spark.read.format("tamis")`: Parquet files of events in, matches out.

Tasks read row groups natively, only the columns that some subscription mentions, match them, and
hand matches alone to the JVM. With `mapInArrow` every event crosses from the JVM to Python, which
costs more than matching it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from tamis.errors import ArgumentError, EventError, StorageError
from tamis.spark.frames import arrow_schema_of
from tamis.spark.index import IndexRef
from tamis.spark.matching import EventMatcher, Wanted
from tamis.spark.store import absolute_uri

_ROWS_PER_TASK = 1_000_000
_ROWS_PER_BATCH = 65_536
_OPTIONS = (
    "path",
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
    "rows_per_task",
)


class TamisSource(DataSource):
    """The data source `tamis`.

    path      a Parquet file of events, or a folder of such
    index     the index, in its newest version or in that of the option `version`
    id, columns, attrs, position, output, deliver, keep, max_mapped_bytes   as of `match`; several
              names have commas between, and `columns` may say attribute=column
    rows_per_task   about so many events are a task
    """

    @classmethod
    def name(cls) -> str:
        return "tamis"

    def schema(self) -> T.StructType:
        return _nullable(self._plan()[1])

    def reader(self, schema: T.StructType) -> DataSourceReader:
        matcher, _, files = self._plan()
        rows_per_task = self._number("rows_per_task") or _ROWS_PER_TASK
        return _Reader(matcher, files, rows_per_task, arrow_schema_of(schema))

    def _plan(self) -> tuple[EventMatcher, T.StructType, ParquetFiles]:
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
        matcher, schema = wanted.plan(ref, from_arrow_schema(files.schema()))
        return matcher, schema, files

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


@dataclass(frozen=True)
class ParquetFiles:
    """The Parquet files at a path or URI."""

    uri: str

    def paths(self) -> list[str]:
        filesystem, root = self._open()
        info = filesystem.get_file_info(root)
        if info.type == fs.FileType.File:
            return [root]
        if info.type == fs.FileType.NotFound:
            raise StorageError(f"{self.uri}: there are no events; path must be a file or a folder")
        found = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
        paths = sorted(
            each.path
            for each in found
            if each.type == fs.FileType.File and not each.base_name.startswith((".", "_"))
        )
        if not paths:
            raise StorageError(f"{self.uri}: there are no events; the folder has no files")
        return paths

    def schema(self) -> pa.Schema:
        schemas = {path: self.open(path).schema_arrow for path in self.paths()}
        first = next(iter(schemas))
        for path, schema in schemas.items():
            if schema != schemas[first]:
                raise EventError(
                    f"{path} must have the columns of {first}, {_shown(schemas[first])}, not "
                    f"{_shown(schema)}"
                )
        return schemas[first].remove_metadata()

    def open(self, path: str) -> pq.ParquetFile:
        filesystem, _ = self._open()
        try:
            return pq.ParquetFile(path, filesystem=filesystem)
        except (pa.ArrowInvalid, OSError) as error:
            raise EventError(f"{path}: cannot be read as Parquet: {error}") from error

    def _open(self) -> tuple[fs.FileSystem, str]:
        filesystem, root = fs.FileSystem.from_uri(self.uri)
        return filesystem, root


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


@dataclass
class _Part(InputPartition):
    """Row groups of a file."""

    path: str
    groups: list[int]


class _Reader(DataSourceReader):
    def __init__(
        self, matcher: EventMatcher, files: ParquetFiles, rows_per_task: int, schema: pa.Schema
    ) -> None:
        self._matcher, self._files = matcher, files
        self._rows_per_task, self._schema = rows_per_task, schema

    def partitions(self) -> Sequence[InputPartition]:
        parts = []
        for path in self._files.paths():
            metadata = self._files.open(path).metadata
            groups: list[int] = []
            n_rows = 0
            for group in range(metadata.num_row_groups):
                groups.append(group)
                n_rows += metadata.row_group(group).num_rows
                if n_rows >= self._rows_per_task:
                    parts.append(_Part(path, groups))
                    groups, n_rows = [], 0
            if groups:
                parts.append(_Part(path, groups))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        columns = self._matcher.columns
        with self._files.open(partition.path) as file:
            batches = file.iter_batches(
                batch_size=_ROWS_PER_BATCH, row_groups=partition.groups, columns=columns.sources()
            )
            for found in self._matcher(columns.take(batch) for batch in batches):
                yield found.cast(self._schema)
