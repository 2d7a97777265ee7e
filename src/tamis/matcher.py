"""The live set of subscriptions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import _core
from tamis._core import EventBatch
from tamis.errors import ArgumentError, ArgumentTypeError, BatchError
from tamis.events import to_dicts, to_stream
from tamis.language import Node
from tamis.matches import Matches

Position = tuple[str, str] | None


class Matcher(_core.Matcher):
    """Subscriptions that can change at any time, and the events that satisfy them.

    engine      a name of `tamis.engines()`, or "auto"
    space       "plane", or "earth": x is a longitude, y a latitude, radii are in metres
    threads     how many threads a large batch is matched on; by default all CPUs it may use
    parameters  numbers that the engine is built with

    Ids are all ints or all strings. Subscribing an id again replaces its predicate.
    """

    def __init__(
        self,
        engine: str = "auto",
        space: str = "plane",
        threads: int | None = None,
        parameters: Mapping[str, float] | None = None,
    ) -> None:
        if not isinstance(engine, str):
            raise ArgumentTypeError(f"engine must be a str, not {engine!r}")
        if not isinstance(space, str):
            raise ArgumentTypeError(f"space must be a str, not {space!r}")
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if not isinstance(threads, int) or isinstance(threads, bool):
            raise ArgumentTypeError(f"threads must be an int or None, not {threads!r}")
        if not 1 <= threads <= 1024:
            raise ArgumentError(f"threads must be from 1 to 1024, not {threads}")
        numbers = dict(parameters or {})
        for name, value in numbers.items():
            if not isinstance(name, str) or not isinstance(value, int | float):
                raise ArgumentTypeError(
                    f"parameters must map names to numbers, not {name!r} to {value!r}"
                )
        super().__init__(engine, space, threads, numbers)
        self._engine = engine
        self._space = space
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Matcher of {len(self)} subscriptions, engine {self._engine}, {self._space}>"

    def subscribe(
        self, id: int | str, predicate: str | Node, *, subscriber: int | str | None = None
    ) -> None:
        """Adds a subscription, or replaces the one that has this id.

        A predicate that cannot be read is a `LanguageError`, and nothing changes.
        """
        if isinstance(predicate, Node):
            predicate = str(predicate)
        elif not isinstance(predicate, str):
            raise ArgumentTypeError(f"a predicate must be a str or a tree, not {predicate!r}")
        super().subscribe(id, predicate, subscriber=subscriber)

    def subscribe_many(self, table: Any) -> None:
        """Adds or replaces many subscriptions, all or none.

        `table` has the columns id, predicate and, if wanted, subscriber: an Arrow table, a pandas
        DataFrame, anything with the Arrow interface, or a dict of columns. A `BatchError` names the
        first bad rows.
        """
        batch = _to_subscriptions(table)
        schema, array = batch.__arrow_c_array__()
        errors = self._subscribe_arrow(schema, array)
        if errors:
            shown = "\n".join(f"row {row}: {error}" for row, error in errors)
            raise BatchError(f"no row was taken, since some are bad:\n{shown}", errors)

    def match_many(
        self,
        events: Any,
        *,
        deliver: str = "subscriptions",
        output: str = "ids",
        position: Position = None,
    ) -> Matches:
        """The matches of many events.

        events    an Arrow table or record batch, a pandas DataFrame, a list of dicts, or an
                  `EventBatch` of `encode`; columns are attributes, a map column holds several
        deliver   "subscriptions", or "subscribers": each once, however many of theirs match
        output    "ids", "bitset" or "count"
        position  the names of the two attributes that hold an event's position
        """
        view = self._view()
        batch = self._encode(view, events, position)
        return Matches(self._match_view(view, batch, deliver, output), output)

    def match_json(
        self,
        lines: str | bytes,
        *,
        deliver: str = "subscriptions",
        output: str = "ids",
        position: Position = None,
        on_error: str = "raise",
    ) -> Matches:
        """The matches of JSON lines: one object a line, nested objects are `outer.inner`.

        on_error="skip" leaves bad lines out and reports them in `Matches.errors`; "raise" makes the
        first one an `EventError`. `Matches.lines` has the line of each event.
        """
        if on_error not in ("raise", "skip"):
            raise ArgumentError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        view = self._view()
        batch, numbers, errors, n_errors = self._encode_json(
            view, lines, position, on_error == "skip"
        )
        result = self._match_view(view, batch, deliver, output)
        return Matches(result, output, lines=numbers, errors=errors, n_errors=n_errors)

    def encode(self, events: Any, *, position: Position = None) -> EventBatch:
        """Events in the core's own form, for matching them more than once.

        Only attributes that a subscription mentions are kept: subscriptions with new attributes
        make the batch stale, and matching it then is an error.
        """
        return self._encode(self._view(), events, position)

    def _encode(self, view: _core.View, events: Any, position: Position) -> EventBatch:
        if isinstance(events, EventBatch):
            if position is not None:
                raise ArgumentError("position belongs to encode, and these events are encoded")
            return events
        stream = to_stream(events)
        if stream is not None:
            return self._encode_stream(view, stream, position)
        return self._encode_dicts(view, to_dicts(events), position)

    def stats(self) -> dict[str, Any]:
        """Counts and bytes, and the segments that there are."""
        stats: dict[str, Any] = self._stats()
        return {"engine": self._engine, "space": self._space, "threads": self._threads, **stats}


def _to_subscriptions(table: Any) -> pa.RecordBatch:
    """The columns that the core reads: ids as int64 or large strings, predicates as large strings."""
    if isinstance(table, Mapping):
        columns = dict(table)
    else:
        if isinstance(table, pa.RecordBatch | pa.Table):
            arrow = table
        elif type(table).__module__.partition(".")[0] == "pandas":
            arrow = pa.Table.from_pandas(table, preserve_index=False)
        elif hasattr(table, "__arrow_c_stream__"):
            arrow = pa.RecordBatchReader.from_stream(table).read_all()
        else:
            raise ArgumentTypeError(
                "subscriptions must be a table (Arrow, pandas) or a dict of columns, "
                f"not a {type(table).__name__}"
            )
        columns = {name: arrow.column(name) for name in arrow.column_names}
    unknown = [name for name in columns if name not in ("id", "predicate", "subscriber")]
    missing = [name for name in ("id", "predicate") if name not in columns]
    if unknown or missing:
        raise ArgumentError(
            "subscriptions must have the columns id, predicate and, if wanted, subscriber, "
            f"not {', '.join(map(str, columns)) or 'none'}"
        )
    arrays = {name: _to_column(name, columns[name]) for name in sorted(columns, key=_column_order)}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise ArgumentError(f"the columns must be of one length, not {lengths}")
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _column_order(name: str) -> int:
    return ("id", "predicate", "subscriber").index(name)


def _to_column(name: str, values: Any) -> pa.Array:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        if isinstance(values, str | bytes):
            raise ArgumentTypeError(f"column {name} must be a list of values, not one {values!r}")
        if name == "predicate":
            values = [str(value) if isinstance(value, Node) else value for value in values]
        try:
            values = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise ArgumentTypeError(f"column {name} must hold values of one type: {error}") from error
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_string_view(kind)
    )
    if name == "predicate" and not is_text and len(values):
        raise ArgumentTypeError(f"column predicate must hold strings, not {values.type}")
    if not is_text and not pa.types.is_integer(kind) and len(values):
        raise ArgumentTypeError(f"column {name} must hold integers or strings, not {values.type}")
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ArgumentError(f"column {name} must have no nulls, and row {row} is null")
    try:
        values = values.cast(pa.large_string() if is_text or name == "predicate" else pa.int64())
    except pa.ArrowInvalid as error:
        raise ArgumentError(f"column {name} must fit 64-bit integers: {error}") from error
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # more than one array holds
        values = pa.concat_arrays(values.chunks)
    return values


def _is_string_view(kind: pa.DataType) -> bool:
    return hasattr(pa.types, "is_string_view") and bool(pa.types.is_string_view(kind))
