"""Tables in files: Parquet, NDJSON, CSV, and plain text with one predicate a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from tamis.errors import ArgumentError


def read_table(path: str | Path) -> pa.Table:
    """The table in a file, by the ending of its name."""
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ArgumentError(
            f"{path}: the name must end in one of {', '.join(_READERS)}, not {path.suffix or path.name!r}"
        )
    try:
        return reader(path)
    except FileNotFoundError:
        raise ArgumentError(f"{path}: there is no such file") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read as {path.suffix[1:]}: {error}") from error


def _read_lines(path: Path) -> pa.Table:
    lines = path.read_text(encoding="utf-8").splitlines()
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
