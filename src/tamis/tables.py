"""Tables in files: Parquet, NDJSON, CSV, and plain text with one predicate a line.

Subscriptions are read whole. Events are read and results are written piece by piece, so that
neither has to fit into memory:

    EventFile.pieces() ──► Rows (Arrow)  │ Lines (JSON, undecoded)     at most a few megabytes each
    Results.write(table)  …  aside, and renamed once everything is there

CSV has no types. The type of an event's column must not depend on where a piece happens to end, so
a CSV file is read twice: once for the types of its columns, once for the rows. Rejected: to take
the types from the beginning of the file, as PyArrow's streaming reader does. A column that is
empty or whole-numbered there and not later on is then an error in the middle of a run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from tamis.errors import ArgumentError, EventError

FORMATS = ("ndjson", "csv", "parquet")

_FORMAT_OF = {".parquet": "parquet", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv"}

# How much of a text file is read at once. 4 MiB: from 1 to 16 MiB the speed is the same, and a
# piece's rows stay close to the caches (NDJSON, 2 cores, 2026-11).
_BLOCK_BYTES = 4 << 20

# Each table that is written to Parquet becomes a row group; many small ones make a file that is
# large and slow to read.
_ROW_GROUP_ROWS = 262_144

_UNREADABLE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeDecodeError)


def format_of(path: str | Path) -> str:
    """The format that the ending of a file's name stands for."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMAT_OF:
        raise ArgumentError(
            f"{path}: the name must end in one of {', '.join(_FORMAT_OF)}, not "
            f"{suffix or Path(path).name!r}"
        )
    return _FORMAT_OF[suffix]


def read_table(path: str | Path) -> pa.Table:
    """The table in a file, by the ending of its name."""
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(
            f"{path}: the name must end in one of {', '.join(_READERS)}, not "
            f"{path.suffix or path.name!r}"
        )
    with _naming(path):
        return reader(path)


def _read_lines(path: Path) -> pa.Table:
    # A line ends at a newline alone: splitlines() would also cut strings at U+2028 and the like.
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    numbered = [(row, line) for row, line in enumerate(lines, 1) if line.strip()]
    return pa.table(
        {
            "id": pa.array([row for row, _ in numbered], pa.int64()),
            "predicate": pa.array([line for _, line in numbered], pa.string()),
        }
    )


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".parquet": lambda path: pa.parquet.read_table(path),
    ".ndjson": lambda path: pa.json.read_json(path),
    ".jsonl": lambda path: pa.json.read_json(path),
    ".csv": lambda path: pa.csv.read_csv(path),
    ".txt": _read_lines,
}


@contextlib.contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Errors of reading a file name the file."""
    try:
        yield
    except FileNotFoundError:
        raise ArgumentError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _UNREADABLE as error:
        kind = Path(path).suffix[1:].lower()
        raise ArgumentError(f"{path}: cannot be read as {kind}: {error}") from error


# ── subscriptions ───────────────────────────────────────────────────────────────────

_COLUMNS = ("id", "predicate", "subscriber")


def read_subscriptions(path: str | Path) -> pa.Table:
    """The columns id, predicate and, if the file has one, subscriber.

    In CSV, ids and subscribers are integers if every one of them is written as an integer is, and
    strings otherwise: 007 and 1.0 are strings.
    """
    path = Path(path)
    form = format_of(path)
    with _naming(path):
        if form == "parquet":
            _check_columns(path, pa.parquet.read_schema(path).names)
            return pa.parquet.read_table(path)
        if form == "csv":
            return _read_csv_subscriptions(path)
        return _read_ndjson_subscriptions(path)


def _check_columns(path: Path, names: list[str]) -> None:
    unknown = [name for name in names if name not in _COLUMNS]
    missing = [name for name in ("id", "predicate") if name not in names]
    if missing or unknown or len(set(names)) != len(names):
        raise ArgumentError(
            f"{path}: the columns must be id, predicate and, if wanted, subscriber, not "
            f"{', '.join(names) or 'none'}; rename or drop the others"
        )


def _read_csv_subscriptions(path: Path) -> pa.Table:
    table = pa.csv.read_csv(
        path,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(_COLUMNS, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    _check_columns(path, table.column_names)
    keys = [name for name in table.column_names if name != "predicate"]
    if table.num_rows and all(_are_integers(table.column(name)) for name in keys):
        for name in keys:
            with contextlib.suppress(pa.ArrowInvalid):  # beyond 64 bits: they stay strings
                integers = table.column(name).cast(pa.int64())
                table = table.set_column(table.column_names.index(name), name, integers)
        if len({table.schema.field(name).type for name in keys}) > 1:
            for name in keys:
                texts = table.column(name).cast(pa.large_string())
                table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _are_integers(texts: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, r"^(0|-?[1-9][0-9]*)$")).as_py())


def _read_ndjson_subscriptions(path: Path) -> pa.Table:
    """Not by PyArrow, to which a string that looks like a time is a time, in ids, too."""
    columns: dict[str, list[Any]] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8-sig").strip()
            if not text:
                continue
            try:
                row = json.loads(text)
            except ValueError as error:
                raise ArgumentError(f"{path}: line {number} is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ArgumentError(
                    f"{path}: line {number} must be an object with id and predicate, "
                    f"not {text[:40]}"
                )
            if not columns:
                _check_columns(path, list(row))
                columns = {name: [] for name in row}
            if row.keys() != columns.keys():
                raise ArgumentError(
                    f"{path}: line {number} must have the keys of the first line, "
                    f"{', '.join(columns)}, not {', '.join(row) or 'none'}"
                )
            for name, value in row.items():
                columns[name].append(value)
    if not columns:
        return pa.table({"id": pa.array([], pa.int64()), "predicate": pa.array([], pa.string())})
    arrays = {}
    for name, values in columns.items():
        kinds = {type(value) for value in values}
        if name == "predicate" and kinds != {str}:
            raise ArgumentError(f"{path}: each predicate must be a string")
        if kinds != {str} and kinds != {int}:
            raise ArgumentError(f"{path}: each {name} must be an integer, or each a string")
        try:
            arrays[name] = pa.array(values, pa.large_string() if kinds == {str} else pa.int64())
        except OverflowError:
            raise ArgumentError(f"{path}: each {name} must be an integer of 64 bits") from None
    return pa.table(arrays)


# ── events ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rows:
    """Events as rows of a table, with the place of each in its file."""

    batch: pa.RecordBatch
    places: npt.NDArray[np.int64]  # [n_rows]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, begin: int, end: int) -> Rows:
        return Rows(self.batch.slice(begin, end - begin), self.places[begin:end])


@dataclass(frozen=True)
class Lines:
    """Events as JSON lines, not yet decoded; line k is data[ends[k - 1] : ends[k]]."""

    data: bytes
    ends: npt.NDArray[np.int64]  # [n_lines]
    first: int  # the place of the first line in its file

    def __len__(self) -> int:
        return len(self.ends)

    def slice(self, begin: int, end: int) -> Lines:
        ends = self.ends[begin:end]
        offset = int(self.ends[begin - 1]) if begin else 0
        data = self.data[offset : int(ends[-1])] if len(ends) else b""
        return Lines(data, ends - offset, self.first + begin)

    def line(self, idx: int) -> bytes:
        return self.data[int(self.ends[idx - 1]) if idx else 0 : int(self.ends[idx])]


@dataclass
class EventFile:
    """A file of events that is read piece by piece; "-" is NDJSON on the standard input.

    An event's place is its number in the file, from 0: the row in Parquet and CSV, the line in
    NDJSON. Rows and lines that are skipped count, too.
    """

    path: str
    batch_rows: int = 65_536
    skip_bad_rows: bool = False
    on_progress: Callable[[str, float], None] = lambda phase, share: None
    errors: list[str] = field(default_factory=list)
    """Why rows were skipped: the first few."""
    n_errors: int = 0

    def __post_init__(self) -> None:
        self.format = "ndjson" if self.path == "-" else format_of(self.path)

    def pieces(self) -> Iterator[Rows | Lines]:
        """The events in order."""
        readers: dict[str, Callable[[], Iterator[Rows | Lines]]] = {
            "parquet": self._parquet,
            "csv": self._csv,
            "ndjson": self._ndjson,
        }
        with _naming(self.path):
            yield from readers[self.format]()

    def skip(self, error: str) -> None:
        self.n_errors += 1
        if len(self.errors) < 5:
            self.errors.append(error)

    def _parquet(self) -> Iterator[Rows]:
        with pa.parquet.ParquetFile(self.path) as file:
            n_rows = file.metadata.num_rows
            place = 0
            for batch in file.iter_batches(batch_size=self.batch_rows):
                end = place + batch.num_rows
                self.on_progress("matching", end / n_rows)
                yield Rows(batch, np.arange(place, end, dtype=np.int64))
                place = end

    def _ndjson(self) -> Iterator[Lines]:
        with contextlib.ExitStack() as stack:
            file = cast(
                io.BufferedReader,
                sys.stdin.buffer
                if self.path == "-"
                else stack.enter_context(open(self.path, "rb")),
            )
            n_bytes = _size(file)
            first = 0
            for data in _blocks(file, lambda block: block.rfind(b"\n") + 1):
                ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64) + 1
                if not data.endswith(b"\n"):
                    ends = np.append(ends, len(data))
                if n_bytes:
                    self.on_progress("matching", file.tell() / n_bytes)
                yield Lines(data, ends, first)
                first += len(ends)

    # ── CSV ──

    def _csv(self) -> Iterator[Rows]:
        names: list[str] = []
        types: dict[str, pa.DataType] = {}
        for phase in ("looking at types", "matching"):
            place = 0
            with open(self.path, "rb") as file:
                n_bytes = _size(file)
                header_end = 0
                for data in _blocks(file, _end_of_records):
                    if place == 0 and header_end == 0:
                        header_end = _end_of_first_record(data)
                        names = pa.csv.read_csv(io.BytesIO(data[:header_end])).column_names
                        data = data[header_end:]
                        if not data:
                            continue
                    table, places, n_rows = self._csv_rows(data, names, types, place, phase)
                    place += n_rows
                    self.on_progress(phase, file.tell() / n_bytes)
                    if phase == "matching":
                        for batch in table.to_batches():
                            yield Rows(batch, places[: batch.num_rows])
                            places = places[batch.num_rows :]
                    else:
                        for column in table.schema:
                            known = types.get(column.name, pa.null())
                            types[column.name] = _common_type(known, column.type)
            for name, kind in types.items():
                if pa.types.is_binary(kind):  # what PyArrow makes of it
                    raise EventError(f"{self.path}: column {name} must be text in UTF-8")
            # Events cannot hold times of day: they are text.
            types = {
                name: pa.string() if pa.types.is_time(kind) else kind
                for name, kind in types.items()
            }

    def _csv_rows(
        self, data: bytes, names: list[str], types: dict[str, pa.DataType], place: int, phase: str
    ) -> tuple[pa.Table, npt.NDArray[np.int64], int]:
        """The rows of a block, their places, and how many rows there were, bad ones included."""
        bad_rows: list[int] = []

        def on_bad_row(row: Any) -> str:
            # An exception from here would be lost inside PyArrow.
            bad_rows.append(row.number - 1)
            reasons.append(
                f"row {place + row.number - 1} must have {row.expected_columns} columns, as the "
                f"header has, not {row.actual_columns}"
            )
            return "skip" if self.skip_bad_rows else "error"

        reasons: list[str] = []
        try:
            table = pa.csv.read_csv(
                io.BytesIO(data),
                # One thread: only so do bad rows have numbers.
                read_options=pa.csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=max(len(data), 1)
                ),
                parse_options=pa.csv.ParseOptions(
                    newlines_in_values=True, invalid_row_handler=on_bad_row
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types=types if phase == "matching" else None,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if reasons and not self.skip_bad_rows:
                raise EventError(f"{self.path}: {reasons[0]}") from error
            raise
        if phase == "matching":
            for reason in reasons:
                self.skip(reason)
        n_rows = table.num_rows + len(bad_rows)
        is_good = np.ones(n_rows, dtype=bool)
        is_good[bad_rows] = False
        return table, np.flatnonzero(is_good).astype(np.int64) + place, n_rows


def _size(file: BinaryIO) -> int:
    """In bytes; 0 for what is no plain file."""
    return os.fstat(file.fileno()).st_size if file.seekable() else 0


def _blocks(file: io.BufferedReader, end_of: Callable[[bytes], int]) -> Iterator[bytes]:
    """The file in blocks that end where `end_of` says that a block may end (0: nowhere)."""
    rest = b""
    n_wanted = _BLOCK_BYTES
    # read1 gives what is there: a pipe's lines are matched as they come, and Ctrl-C is noticed
    # between two reads, where read() would stay inside until it has everything.
    while more := file.read1(n_wanted):
        block = rest + more
        end = end_of(block)
        if end:
            yield block[:end]
            n_wanted = _BLOCK_BYTES
        else:
            n_wanted = len(block)  # doubled, so that a long line costs linear time
        rest = block[end:]
    if rest:
        yield rest


def _end_of_records(block: bytes) -> int:
    """Behind the last line break that is not inside quotes: one with an even number before it."""
    n_quotes = block.count(b'"')
    limit = len(block)
    while (place := block.rfind(b"\n", 0, limit)) >= 0:
        n_quotes -= block.count(b'"', place, limit)
        if n_quotes % 2 == 0:
            return place + 1
        limit = place
    return 0


def _end_of_first_record(block: bytes) -> int:
    n_quotes = begin = 0
    while (place := block.find(b"\n", begin)) >= 0:
        n_quotes += block.count(b'"', begin, place)
        begin = place + 1
        if n_quotes % 2 == 0 and block[:place].strip():  # empty lines are no records
            return begin
    return len(block)


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of a column of which two pieces look like these."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    kinds = [kind for kind in (one, other) if not pa.types.is_date(kind)]
    if all(pa.types.is_timestamp(kind) and kind.tz == kinds[0].tz for kind in kinds):
        if len(kinds) == 1 and kinds[0].tz is not None:  # a date has no zone
            return pa.string()
        return pa.timestamp("ns", kinds[0].tz)
    return pa.string()


# ── results ─────────────────────────────────────────────────────────────────────────


class Results:
    """Tables of one schema, written one behind the other."""

    def __init__(self, file: BinaryIO, form: str) -> None:
        self._file = file
        self._format = form
        self._writer: Any = None
        self._pending: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        if self._format == "ndjson":
            _write_json_lines(table, self._file)
            return
        if self._writer is None:
            kind = pa.parquet.ParquetWriter if self._format == "parquet" else pa.csv.CSVWriter
            self._writer = kind(self._file, table.schema)
        self._pending.append(table)
        if sum(pending.num_rows for pending in self._pending) >= _ROW_GROUP_ROWS:
            self._write_pending()

    def close(self) -> None:
        self._write_pending()
        if self._writer is not None:
            self._writer.close()
        self._file.flush()

    def _write_pending(self) -> None:
        pending, self._pending = self._pending, []
        if any(table.num_rows for table in pending):
            self._writer.write_table(pa.concat_tables(pending))


@contextlib.contextmanager
def open_results(path: str | None, form: str) -> Iterator[Results]:
    """Results for a file, or for the standard output where path is None.

    The file appears under its name when the block ends well, and not at all when it ends by an
    error or Ctrl-C.
    """
    with contextlib.ExitStack() as stack:
        file: BinaryIO = (
            sys.stdout.buffer if path is None else stack.enter_context(_written_aside(Path(path)))
        )
        results = Results(file, form)
        try:
            yield results
        except BaseException:
            with contextlib.suppress(Exception):  # else the writer complains when it is collected
                results.close()
            raise
        results.close()


@contextlib.contextmanager
def _written_aside(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when the block ends well, and is removed when not."""
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.exists() and not path.is_file():  # a device or a pipe: there is no aside
        with path.open("wb") as file:
            yield file
        return
    if not path.parent.is_dir():
        raise ArgumentError(f"{path}: there is no folder {path.parent}")
    aside = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


_TEXT = pa.large_string()


def _write_json_lines(table: pa.Table, file: BinaryIO) -> None:
    """One object a row, put together by Arrow: 7 times as fast as json.dumps of each row."""
    if not table.num_rows:
        return
    pieces: list[Any] = []
    for idx, name in enumerate(table.column_names):
        opening = f"{'{' if idx == 0 else ', '}{json.dumps(name)}: "
        pieces += [pa.scalar(opening, _TEXT), _json_texts(table.column(name))]
    pieces += [pa.scalar("}\n", _TEXT), pa.scalar("", _TEXT)]
    lines = pc.binary_join_element_wise(*pieces)
    chunks = lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]
    for chunk in chunks:
        _, ends, data = chunk.buffers()
        offsets = np.frombuffer(ends, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        file.write(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    file.flush()


def _json_texts(column: pa.ChunkedArray) -> pa.Array:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if pa.types.is_large_list(column.type):
        lists = pa.LargeListArray.from_arrays(column.offsets, _json_texts(column.values))
        return pc.binary_join_element_wise(
            pa.scalar("[", _TEXT),
            pc.binary_join(lists, pa.scalar(", ", _TEXT)),
            pa.scalar("]", _TEXT),
            pa.scalar("", _TEXT),
        )
    if pa.types.is_integer(column.type):
        return column.cast(_TEXT)
    # Few different ids stand in many rows: each is escaped once.
    encoded = column.dictionary_encode()
    texts = [json.dumps(text, ensure_ascii=False) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, _TEXT).take(encoded.indices)
