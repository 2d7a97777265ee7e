"""Events from outside: which encoder reads what, and odd values of dicts."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import ArgumentTypeError, EventError, TamisError

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def coerce(name: str, value: Any) -> bool | int | float | str | None:
    """A value that is not plainly a bool, int, float, str or None, as one of those.

    The core calls this for datetimes, NumPy scalars and subclasses; the common types never come
    here.
    """
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' own ways to say "missing"
        return None
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, datetime.date):
        return (value.toordinal() - _EPOCH.toordinal()) * 86_400_000_000
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer) and not isinstance(value, np.timedelta64):
        return int(value)
    if isinstance(value, np.floating) and value.dtype.itemsize <= 8:
        return float(value)
    if isinstance(value, pa.Scalar):
        return coerce_scalar(name, value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value) if type(value).__str__ is str.__str__ else "".join(value)
    hint = ""
    if isinstance(value, decimal.Decimal):
        hint = "; convert it to int or float first"
    elif isinstance(value, dict):
        hint = "; write its entries as 'outer.inner'"
    raise EventError(
        f"attribute {name!r} must be a number, str, bool, datetime or None, "
        f"not {type(value).__name__}{hint}"
    )


def coerce_scalar(name: str, value: pa.Scalar) -> bool | int | float | str | None:
    """A pyarrow scalar as a plain value."""
    plain = value.as_py()
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    return coerce(name, plain)


def to_stream(events: Any) -> Any | None:
    """An Arrow stream capsule for tables of any library, or None if `events` is no table."""
    if isinstance(events, pa.RecordBatch):
        events = pa.Table.from_batches([events])
    elif is_pandas(events):
        events = from_pandas(events, "events", EventError)
    if hasattr(events, "__arrow_c_stream__"):
        return events.__arrow_c_stream__()
    if hasattr(events, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(events)]).__arrow_c_stream__()
    return None


def is_pandas(table: Any) -> bool:
    """Is it something of pandas? Without importing pandas to ask."""
    return type(table).__module__.partition(".")[0] == "pandas"


def from_pandas(frame: Any, what: str, error_type: type[TamisError]) -> pa.Table:
    """A table of Arrow. NaN and NaT of pandas mean absent: they become nulls."""
    if not hasattr(frame, "columns"):
        raise ArgumentTypeError(
            f"{what} must be a pandas DataFrame, not a {type(frame).__name__}; use to_frame()"
        )
    columns = {}
    for position, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise error_type(f"the name of a column must be a str, not {name!r}")
        if name in columns:
            raise error_type(f"column {name!r} stands twice in the table")
        try:
            columns[name] = pa.Array.from_pandas(frame.iloc[:, position])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise error_type(
                f"column {name!r} has values that do not fit one type: {error}"
            ) from error
        except UnicodeEncodeError as error:
            raise error_type(
                f"column {name!r} must hold text that UTF-8 can hold, without lone surrogates"
            ) from error
    if not columns:
        return pa.table({"": pa.nulls(len(frame))})
    return pa.table(columns)


def to_dicts(events: Any) -> list[Any]:
    """A list of dicts from any iterable of mappings."""
    if isinstance(events, Mapping | str | bytes) or not isinstance(events, Iterable):
        raise ArgumentTypeError(
            "events must be a table (Arrow, pandas), an EventBatch or a list of dicts, "
            f"not a {type(events).__name__}"
        )
    return [
        event if isinstance(event, dict) or not isinstance(event, Mapping) else dict(event)
        for event in events
    ]
