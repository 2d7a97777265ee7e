"""The live set of subscriptions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from tamis import _core
from tamis._core import EventBatch
from tamis.errors import ArgumentError, ArgumentTypeError, BatchError
from tamis.events import from_pandas, is_pandas, to_dicts, to_stream
from tamis.language import Node, parse
from tamis.matches import Matches

if TYPE_CHECKING:
    from tamis.explain import Explanation
    from tamis.plans import Plan

Position = tuple[str, str] | None


class Matcher(_core.Matcher):
    """Subscriptions that can change at any time, and the events that satisfy them.

    engine      a name of `tamis.engines()`, or "auto"
    space       "plane", or "earth": x is a longitude, y a latitude, radii are in metres
    threads     how many threads a large batch is matched on; by default all CPUs it may use
    parameters  numbers that the engine is built with
    count_matches  keep how often each subscription matched, for `stats()`

    Ids are all ints or all strings. Subscribing an id again replaces its predicate.
    """

    def __init__(
        self,
        engine: str = "auto",
        space: str = "plane",
        threads: int | None = None,
        parameters: Mapping[str, float] | None = None,
        count_matches: bool = False,
    ) -> None:
        self._start(engine, space, threads, parameters, count_matches)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        engine: str = "auto",
        space: str | None = None,
        threads: int | None = None,
        parameters: Mapping[str, float] | None = None,
        count_matches: bool = False,
        sync: str = "grouped",
        read_only: bool = False,
        verify: bool = False,
    ) -> Self:
        """A durable matcher: every change is in the directory before its call returns.

        create     makes the directory if there is none; otherwise it must hold a matcher
        space      of a new matcher; an existing one keeps its own
        sync       when a change reaches the disk itself: "each" before its call returns, "grouped"
                   within 10 ms, "none" when the system likes. The death of the process loses
                   nothing in any case; the death of the machine loses nothing with "each".
        read_only  the state as it is now, which cannot be changed: any number of processes may
                   open it so, also beside the one that writes, and they share its memory
        verify     reads every byte now and checks it, instead of each part on its first use

        One process at a time may open it for writing. Use it as a context manager, or `close` it.
        """
        if not isinstance(sync, str):
            raise ArgumentTypeError(f"sync must be a str, not {sync!r}")
        if create and read_only:
            raise ArgumentError("create and read_only exclude each other")
        self = cls.__new__(cls)
        self._start(
            engine,
            space,
            threads,
            parameters,
            count_matches,
            path=os.path.abspath(path),
            create=create,
            sync=sync,
            read_only=read_only,
            verify=verify,
        )
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Merges, and writes what lives now to a new directory, which `open` takes."""
        self._save(os.path.abspath(os.fspath(path)))

    def _start(
        self,
        engine: str,
        space: str | None,
        threads: int | None,
        parameters: Mapping[str, float] | None,
        count_matches: bool,
        *,
        path: str | None = None,
        create: bool = False,
        sync: str = "none",
        read_only: bool = False,
        verify: bool = False,
    ) -> None:
        if not isinstance(engine, str):
            raise ArgumentTypeError(f"engine must be a str, not {engine!r}")
        if not isinstance(space, str) and (path is None or space is not None):
            raise ArgumentTypeError(f"space must be a str, not {space!r}")
        if threads is None:
            threads = len(os.sched_getaffinity(0))
        if not isinstance(threads, int) or isinstance(threads, bool):
            raise ArgumentTypeError(f"threads must be an int or None, not {threads!r}")
        if not 1 <= threads <= 1024:
            raise ArgumentError(f"threads must be from 1 to 1024, not {threads}")
        if parameters is not None and not isinstance(parameters, Mapping):
            raise ArgumentTypeError(
                f"parameters must map names to numbers, not be a {type(parameters).__name__}"
            )
        numbers = dict(parameters or {})
        for name, value in numbers.items():
            if not isinstance(name, str) or not isinstance(value, int | float):
                raise ArgumentTypeError(
                    f"parameters must map names to numbers, not {name!r} to {value!r}"
                )
        super().__init__(
            engine,
            space,
            threads,
            bool(count_matches),
            numbers,
            path,
            bool(create),
            sync,
            bool(read_only),
            bool(verify),
        )
        self._count_matches = bool(count_matches)
        self._engine = engine
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Matcher of {len(self)} subscriptions, engine {self._engine}, {self.space}>"

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
        _raise_bad_rows(self._subscribe_arrow(_to_subscriptions(table).__arrow_c_stream__()))

    def move(self, id: int | str, x: float, y: float, *, area: int | None = None) -> None:
        """Moves the centre of a subscription's area to (x, y).

        With several areas (`NEAR`) in its predicate, `area` says which, counted from 0.
        """
        if area is not None and (not isinstance(area, int) or not 0 <= area < 2**32):
            raise ArgumentError(f"area must be the number of an area, counted from 0, not {area!r}")
        self._move(id, _to_float("x", x), _to_float("y", y), area)

    def move_many(self, table: Any) -> None:
        """Moves many areas, all or none: columns id, x, y and, if wanted, area."""
        _raise_bad_rows(self._move_arrow(_to_moves(table).__arrow_c_stream__()))

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
        stream = None if isinstance(events, EventBatch) else to_stream(events)
        if stream is not None:
            return Matches(self._match_stream(view, stream, position, deliver, output), output)
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

    def explain(
        self, id: int | str, event: Any, *, at: tuple[float, float] | None = None
    ) -> Explanation:
        """Why the event satisfies the subscription, or why not, constraint by constraint."""
        from tamis.explain import explain

        return explain(parse(self[id]), event, at, self.space)

    def plan(self) -> Plan:
        """Which engine has which filters, and why: estimates of each candidate, in ns an event.

        `print` it, or take its data. With engine="auto" a segment is planned when it is merged,
        for the events seen lately; see docs/planner.md.
        """
        from tamis.plans import to_plan

        n_new = self._stats()["n_delta_filters"]
        return to_plan(self._engine, cast(int, n_new), self._plan())

    def stats(self) -> dict[str, Any]:
        """Counts and bytes, the segments that there are, and merges.

        With `count_matches`, `top` has the ten subscriptions that matched most, as (id, matches);
        only matches with deliver="subscriptions" are counted.
        """
        stats: dict[str, Any] = self._stats()
        if self._count_matches:
            stats["top"] = self._top(10)
        return {"engine": self._engine, "space": self.space, "threads": self._threads, **stats}


def _raise_bad_rows(errors: list[tuple[int, Exception]]) -> None:
    if errors:
        shown = "\n".join(f"row {row}: {error}" for row, error in errors)
        raise BatchError(f"no row was taken, since some are bad:\n{shown}", errors)


def _to_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r}") from None


def _to_columns(table: Any, what: str, needed: tuple[str, ...], wanted: str) -> dict[str, Any]:
    """The columns of a table in any form: those needed, in order, and `wanted` if it is there."""
    if isinstance(table, Mapping):
        columns = dict(table)
    else:
        if isinstance(table, pa.RecordBatch | pa.Table):
            arrow = table
        elif is_pandas(table):
            arrow = from_pandas(table, what, ArgumentTypeError)
        elif hasattr(table, "__arrow_c_stream__"):
            arrow = pa.RecordBatchReader.from_stream(table).read_all()
        else:
            raise ArgumentTypeError(
                f"{what} must be a table (Arrow, pandas) or a dict of columns, "
                f"not a {type(table).__name__}"
            )
        if len(set(arrow.column_names)) < arrow.num_columns:
            raise ArgumentError(
                f"each column must stand once in a table, not {', '.join(arrow.column_names)}"
            )
        columns = {name: arrow.column(name) for name in arrow.column_names}
    known = (*needed, wanted)
    if any(name not in known for name in columns) or any(name not in columns for name in needed):
        raise ArgumentError(
            f"{what} must have the columns {', '.join(needed)} and, if wanted, {wanted}, "
            f"not {', '.join(map(str, columns)) or 'none'}"
        )
    return {name: columns[name] for name in known if name in columns}


def _to_table(columns: dict[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ArgumentError(f"the columns must be of one length, not {lengths}")
    return pa.table(columns)


def _to_subscriptions(table: Any) -> pa.Table:
    """The columns that the core reads: ids as int64 or large strings, texts as large strings."""
    columns = _to_columns(table, "subscriptions", ("id", "predicate"), "subscriber")
    return _to_table({name: _to_column(name, values) for name, values in columns.items()})


def _to_moves(table: Any) -> pa.Table:
    """The columns that the core reads: ids, x and y as doubles, area as uint32."""
    columns = _to_columns(table, "moves", ("id", "x", "y"), "area")
    types = {"x": pa.float64(), "y": pa.float64(), "area": pa.uint32()}
    return _to_table(
        {
            name: _to_numbers(name, values, types[name])
            if name in types
            else _to_column(name, values)
            for name, values in columns.items()
        }
    )


def _to_numbers(name: str, values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    try:
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        array = values.cast(kind) if is_arrow else pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise ArgumentTypeError(f"column {name} must hold numbers ({kind}): {error}") from error
    return _without_nulls(name, array)


def _without_nulls(name: str, values: Any) -> Any:
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ArgumentError(f"column {name} must have no nulls, and row {row} is null")
    return values


def _to_column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise ArgumentTypeError(f"column {name} must be a list of values, not {values!r}")
        if name == "predicate":
            values = [str(value) if isinstance(value, Node) else value for value in values]
        try:
            values = pa.array(values)
        except UnicodeEncodeError as error:
            raise ArgumentError(
                f"column {name} must hold text that UTF-8 can hold, without lone surrogates"
            ) from error
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise ArgumentTypeError(
                f"column {name} must hold values of one type: {error}"
            ) from error
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_string_view(kind)
    if name == "predicate" and not is_text and len(values):
        raise ArgumentTypeError(f"column predicate must hold strings, not {values.type}")
    if not is_text and not pa.types.is_integer(kind) and len(values):
        raise ArgumentTypeError(f"column {name} must hold integers or strings, not {values.type}")
    values = _without_nulls(name, values)
    try:
        return values.cast(pa.large_string() if is_text or name == "predicate" else pa.int64())
    except pa.ArrowInvalid as error:
        raise ArgumentError(f"column {name} must fit 64-bit integers: {error}") from error


def _is_string_view(kind: pa.DataType) -> bool:
    return hasattr(pa.types, "is_string_view") and bool(pa.types.is_string_view(kind))
