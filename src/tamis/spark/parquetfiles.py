"""The Parquet files of a folder, with the columns that its folders' names hold, as Spark has them.

    events/_SUCCESS, events/_temporary/…      not data: what begins with _ or . is passed over
    events/day=2026-11-15/hour=7/part-0.parquet
           └ two more columns, a date and an integer: `_KINDS` says what a text is

Folders of any other name are refused: Spark reads some of them and passes over others.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tamis.errors import EventError, StorageError

_ROWS_PER_BATCH = 65_536
_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|NaN|[+-]?Infinity", re.ASCII | re.I)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}.*", re.ASCII)


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
            if each.type == fs.FileType.File and each.size and not self._is_hidden(each.path)
        )
        if not paths:
            raise StorageError(f"{self.uri}: there are no events; the folder has no files")
        return paths

    def schema(self) -> pa.Schema:
        """The columns of the files, then those of their folders."""
        paths = self.paths()
        schemas = {path: self.open(path).schema_arrow for path in paths}
        first = paths[0]
        for path, schema in schemas.items():
            if schema != schemas[first]:
                raise EventError(
                    f"{path} must have the columns of {first}, {_shown(schemas[first])}, not "
                    f"{_shown(schema)}"
                )
        whole = schemas[first].remove_metadata()
        for field in self._folder_fields(paths):
            at = whole.get_field_index(field.name)  # where both have it, the folder's counts
            whole = whole.append(field) if at < 0 else whole.set(at, field)
        return whole

    def open(self, path: str, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
        """`dictionaries`: the leaves that are read as such."""
        filesystem, _ = self._open()
        try:
            return pq.ParquetFile(path, filesystem=filesystem, read_dictionary=list(dictionaries))
        except (pa.ArrowInvalid, OSError) as error:
            raise EventError(f"{path}: cannot be read as Parquet: {error}") from error

    def read(
        self,
        path: str,
        groups: Sequence[int],
        names: Sequence[str],
        schema: pa.Schema,
        maps: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Columns of a file's row groups; `schema` is that of all files. The keys of `maps` come as
        dictionaries, as files mostly have them: that takes half the time."""
        texts = self._folders(path)
        values = {
            name: pa.scalar(_parsed(text, schema.field(name).type), schema.field(name).type)
            for name, text in texts.items()
        }
        in_file = [name for name in names if name not in values]
        for batch in self._batches(path, groups, in_file, maps):
            arrays = [
                pa.repeat(values[name], batch.num_rows) if name in values else batch.column(name)
                for name in names
            ]
            yield pa.record_batch(arrays, names=list(names))

    def _batches(
        self, path: str, groups: Sequence[int], names: Sequence[str], maps: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        with self.open(path) as file:
            keys = [_key_of(name, file.schema) for name in maps]
        with self.open(path, keys) as file:
            # Each row group has dictionaries of its own, and a batch one of each.
            for runs in [[group] for group in groups] if keys else [list(groups)]:
                yield from file.iter_batches(_ROWS_PER_BATCH, runs, list(names))

    def _open(self) -> tuple[fs.FileSystem, str]:
        filesystem, root = fs.FileSystem.from_uri(self.uri)
        return filesystem, root

    def _parts(self, path: str) -> list[str]:
        """The names of folders and file below the root."""
        _, root = self._open()
        return path.removeprefix(root).strip("/").split("/")

    def _is_hidden(self, path: str) -> bool:
        return any(
            part.startswith(".")
            or (part.startswith("_") and "=" not in part)
            or part.endswith("._COPYING_")
            for part in self._parts(path)
        )

    def _folders(self, path: str) -> dict[str, str | None]:
        """The columns in the names of a file's folders, as texts."""
        texts: dict[str, str | None] = {}
        for folder in self._parts(path)[:-1]:
            name, _, text = map(unquote, folder.partition("="))
            if not name or not text or name in texts:
                raise EventError(
                    f"{path}: the folder {folder} must be called column=value, as Spark writes "
                    "it; load that folder itself, or move it away"
                )
            texts[name] = None if text == _NULL else text
        return texts

    def _folder_fields(self, paths: Sequence[str]) -> list[pa.Field]:
        folders = {path: self._folders(path) for path in paths}
        first = paths[0]
        for path, texts in folders.items():
            if list(texts) != list(folders[first]):
                raise EventError(
                    f"{path} must lie in folders for the columns of {first}, "
                    f"{', '.join(folders[first]) or 'none'}, not {', '.join(texts) or 'none'}"
                )
        fields = []
        for name in folders[first]:
            given = {path: text for path in paths if (text := folders[path][name]) is not None}
            kind = next(kind for kind, fits, _ in _KINDS if all(map(fits, given.values())))
            if kind is None:
                raise EventError(
                    f"{max(given)}: the folders {name}=… hold decimals or times for Spark, which "
                    "the format tamis does not read; use spark.read.parquet and match"
                )
            fields.append(pa.field(name, kind if given else pa.string()))
        return fields


def _key_of(name: str, schema: pq.ParquetSchema) -> str:
    """The leaf with the keys of a map column."""
    leaves = [schema.column(at) for at in range(len(schema))]
    return next(
        str(leaf.path)
        for leaf in leaves
        if leaf.path.startswith(f"{name}.")
        and leaf.path.count(".") == name.count(".") + 2  # name.key_value.key
        and leaf.max_repetition_level == 1
    )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _is_integer(text: str, n_bits: int) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2 ** (n_bits - 1)) <= int(text) < 2 ** (n_bits - 1)


def _is_whole(text: str) -> bool:
    """Also 1e5 and integers beyond 64 bits, which Spark calls decimals."""
    exponent = Decimal(text).as_tuple().exponent if _DOUBLE.fullmatch(text) else None
    return isinstance(exponent, int) and exponent >= 0


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and datetime.date.fromisoformat(text))
    except ValueError:
        return False


# What a column is whose texts all fit, the narrowest first; None: there is no such column here.
_KINDS: tuple[tuple[pa.DataType | None, Callable[[str], bool], Callable[[str], Any]], ...] = (
    (pa.int32(), lambda text: _is_integer(text, 32), int),
    (pa.int64(), lambda text: _is_integer(text, 64), int),
    (None, _is_whole, Decimal),
    (pa.float64(), lambda text: bool(_DOUBLE.fullmatch(text)), float),
    (pa.date32(), _is_date, datetime.date.fromisoformat),
    # Of the session's zone, which a task does not know.
    (None, lambda text: _is_date(text) or bool(_TIME.fullmatch(text)), str),
    (pa.string(), lambda text: True, str),
)


def _parsed(text: str | None, kind: pa.DataType) -> Any:
    parse = next(parse for each, _, parse in _KINDS if each == kind)
    return None if text is None else parse(text)
