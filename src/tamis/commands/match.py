"""`tamis match`: a file of events against a file of subscriptions, in constant memory.

    EventFile ──► pieces ──► parts of at most --batch rows ──► Matcher ──► Results

A part is made smaller while its events match more than `_MANY_MATCHES` subscriptions, since the
matches of a part are in memory at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.commands.arguments import count, names_pair
from tamis.commands.progress import Bar
from tamis.errors import ArgumentError, EventError, TamisError
from tamis.matcher import Matcher
from tamis.matches import Matches
from tamis.tables import (
    FORMATS,
    EventFile,
    Lines,
    Rows,
    format_of,
    open_results,
    read_subscriptions,
)

_EXAMPLES = """examples:
  tamis match subscriptions.parquet events.parquet -o matches.parquet
  tamis match alerts.csv readings.ndjson | head
  tamis match fences.csv cars.parquet --space earth --position lon,lat -o hits.csv
  tamis match alerts.csv readings.csv --output count --id-column reading -o counts.csv
  tamis match alerts.csv readings.ndjson --deliver subscribers --output list
  cat readings.ndjson | tamis match alerts.csv -

The format of a file is told by its name: .parquet, .ndjson, .jsonl, .csv. An event is named by its
number in the file, from 0, or by the value of --id-column.

exit code: 0 done, 2 wrong use or bad input, 130 after Ctrl-C; without 0 there is no OUT"""

_FIRST_PART = 64  # rows: few, since the number of matches is not known yet
_MANY_MATCHES = 1_000_000  # in one part: some 100 MB with ids that are strings


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "match",
        help="match a file of events against a file of subscriptions",
        description="Finds the subscriptions that each event of a file satisfies. Events are read, "
        "matched and written piece by piece, so they need not fit into memory.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "subscriptions",
        metavar="SUBSCRIPTIONS",
        help="a table with the columns id, predicate and, if wanted, subscriber",
    )
    parser.add_argument(
        "events", metavar="EVENTS", help="a table of events; - is NDJSON on the standard input"
    )
    results = parser.add_argument_group("results")
    results.add_argument(
        "-o", metavar="OUT", dest="out", help="the file (default: standard output)"
    )
    results.add_argument(
        "--format", choices=FORMATS, help="of the results (default: by the name of OUT, or ndjson)"
    )
    results.add_argument(
        "--output",
        choices=("pairs", "list", "count"),
        default="pairs",
        help="a row for each match; or a row for each event with the ids, or with how many "
        "(default: %(default)s)",
    )
    results.add_argument(
        "--deliver",
        choices=("subscriptions", "subscribers"),
        default="subscriptions",
        help="whose ids; subscribers: each once, however many of theirs match",
    )
    results.add_argument(
        "--id-column",
        metavar="NAME",
        help="an attribute that names the event, instead of its number",
    )
    events = parser.add_argument_group("events")
    events.add_argument(
        "--position",
        metavar="X,Y",
        type=names_pair,
        help="the two attributes that hold an event's position",
    )
    events.add_argument(
        "--space",
        choices=("plane", "earth"),
        default="plane",
        help="what positions mean; earth: longitude, latitude, metres (default: plane)",
    )
    events.add_argument(
        "--skip-bad-lines",
        action="store_true",
        help="leave out lines of NDJSON and rows of CSV that cannot be read, and report them",
    )
    how = parser.add_argument_group("how")
    how.add_argument("--engine", default="auto", metavar="NAME", help="see `tamis engines`")
    how.add_argument("--threads", type=count, metavar="N", help="default: all CPUs it may use")
    how.add_argument(
        "--batch",
        type=count,
        default=16_384,
        metavar="ROWS",
        help="how many events are matched at once, at most (default: %(default)s)",
    )
    how.add_argument("--quiet", action="store_true", help="no progress and no summary")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    form = args.format or (format_of(args.out) if args.out else "ndjson")
    if form == "csv" and args.output == "list":
        raise ArgumentError("CSV has no lists: take --output pairs, or another --format")
    if form == "parquet" and not args.out and sys.stdout.isatty():
        raise ArgumentError("Parquet is not for a terminal: name a file with -o")
    is_bar_shown = (
        not args.quiet and sys.stderr.isatty() and (bool(args.out) or not sys.stdout.isatty())
    )
    bar = Bar(sys.stderr, is_bar_shown)
    began = time.monotonic()
    events = EventFile(args.events, args.batch, args.skip_bad_lines, bar.at)
    with _terminated_cleanly():
        try:
            matcher, id_type = _subscribe(args)
            bar.start()
            n_events, n_matches = _match(args, matcher, id_type, events, form, bar)
        finally:
            bar.clear()
    if not args.quiet:
        for error in events.errors:
            print(f"tamis: {args.events}: skipped: {error}", file=sys.stderr)
        skipped = f", {events.n_errors:,} skipped" if events.n_errors else ""
        print(
            f"{n_events:,} events{skipped}, {n_matches:,} matches, "
            f"{time.monotonic() - began:.1f} s",
            file=sys.stderr,
        )
    return 0


@contextlib.contextmanager
def _terminated_cleanly() -> Iterator[None]:
    """`kill` leaves as little behind as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # which has no signals
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _subscribe(args: argparse.Namespace) -> tuple[Matcher, pa.DataType]:
    """The matcher, and the type of what it delivers."""
    table = read_subscriptions(args.subscriptions)
    matcher = Matcher(engine=args.engine, space=args.space, threads=args.threads)
    try:
        matcher.subscribe_many(table)
    except TamisError as error:
        raise ArgumentError(f"{args.subscriptions}: {error}") from error
    n_replaced = table.num_rows - len(matcher)
    if n_replaced and not args.quiet:
        print(
            f"tamis: {args.subscriptions}: {n_replaced:,} rows have an id that a later row has, "
            "and were replaced by it",
            file=sys.stderr,
        )
    is_integer = pa.types.is_integer(table.schema.field("id").type)
    return matcher, pa.int64() if is_integer else pa.large_string()


def _match(
    args: argparse.Namespace,
    matcher: Matcher,
    id_type: pa.DataType,
    events: EventFile,
    form: str,
    bar: Bar,
) -> tuple[int, int]:
    """Matches all events and writes the results; how many events and matches there were."""
    n_events = n_matches = 0
    event_type = None
    n_rows = args.batch if args.output == "count" else min(_FIRST_PART, args.batch)
    options = {
        "output": "count" if args.output == "count" else "ids",
        "deliver": args.deliver,
        "position": args.position,
    }
    with open_results(args.out, form) as results:
        for piece in events.pieces():
            begin = 0
            while begin < len(piece):
                part = piece.slice(begin, begin + n_rows)
                begin += len(part)
                found = _match_part(matcher, part, options, events)
                names = _names_of(part, found, args.id_column, event_type, args.events)
                event_type = names.type
                results.write(_to_table(args, names, found, id_type))
                n_found = int(found.counts.sum())
                n_events += len(found)
                n_matches += n_found
                bar.show(n_events, n_matches)
                if args.output != "count":
                    n_fitting = len(part) * _MANY_MATCHES // max(1, n_found)
                    n_rows = max(1, min(args.batch, 4 * n_rows, n_fitting))
        if not n_events:
            nothing = pa.array([], pa.large_string() if args.id_column else pa.int64())
            results.write(_to_table(args, nothing, matcher.match_many([], **options), id_type))
    return n_events, n_matches


_PLACE = re.compile(r"(line|event) (\d+)")


def _match_part(
    matcher: Matcher, part: Rows | Lines, options: dict[str, Any], events: EventFile
) -> Matches:
    first = part.first if isinstance(part, Lines) else int(part.places[0])

    def in_file(message: str) -> str:
        """A message with the place in the file, where it has the place in the part."""
        return _PLACE.sub(lambda place: f"{place[1]} {int(place[2]) + first}", message, count=1)

    try:
        if isinstance(part, Rows):
            return matcher.match_many(part.batch, **options)
        on_error = "skip" if events.skip_bad_rows else "raise"
        found = matcher.match_json(part.data, on_error=on_error, **options)
    except EventError as error:
        raise EventError(f"{events.path}: {in_file(str(error))}") from error
    for _, reason in found.errors:
        events.skip(in_file(reason))
    events.n_errors += found.n_errors - len(found.errors)
    return found


def _names_of(
    part: Rows | Lines,
    found: Matches,
    id_column: str | None,
    known_type: pa.DataType | None,
    path: str,
) -> pa.Array:
    """What the results call each event."""
    if isinstance(part, Rows):
        if id_column is None:
            return pa.array(part.places)
        if id_column not in part.batch.schema.names:
            raise ArgumentError(
                f"{path}: --id-column must be one of {', '.join(part.batch.schema.names)}, "
                f"not {id_column}"
            )
        column = part.batch.column(id_column)
        if column.null_count:
            place = part.places[np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]]
            raise EventError(f"{path}: row {place} has no {id_column}, which is to name it")
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        try:
            is_integer = pa.types.is_integer(column.type)
            return column.cast(pa.int64() if is_integer else pa.large_string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise EventError(f"{path}: {id_column} cannot name events: {error}") from error
    assert found.lines is not None
    if id_column is None:
        return pa.array(found.lines - 1 + part.first)
    values = []
    for line in (found.lines - 1).tolist():
        value = _value_of(json.loads(part.line(line).decode("utf-8-sig")), id_column)
        if value is None:
            raise EventError(
                f"{path}: line {part.first + line + 1} has no {id_column}, which is to name it"
            )
        kind = pa.int64() if type(value) is int else pa.large_string()
        known_type = known_type or kind
        if type(value) not in (int, str) or kind != known_type:
            raise EventError(
                f"{path}: line {part.first + line + 1}: {id_column} must be "
                f"{'an integer' if known_type == pa.int64() else 'a string'}, to name the event, "
                f"not {json.dumps(value)[:40]}"
            )
        values.append(value)
    try:
        return pa.array(values, known_type or pa.large_string())
    except OverflowError:
        raise EventError(f"{path}: {id_column} must be an integer of 64 bits") from None


def _value_of(event: Any, name: str) -> Any:
    """The attribute of a JSON object, flat or nested."""
    if name in event:
        return event[name]
    for place in (place for place, character in enumerate(name) if character == "."):
        inner = event.get(name[:place])
        if isinstance(inner, dict):
            value = _value_of(inner, name[place + 1 :])
            if value is not None:
                return value
    return None


def _to_table(
    args: argparse.Namespace, names: pa.Array, found: Matches, id_type: pa.DataType
) -> pa.Table:
    what = "id" if args.deliver == "subscriptions" else "subscriber"
    if args.output == "count":
        return pa.table({"event": names, "count": found.counts})
    ids = found.ids if found.ids.type == id_type else found.ids.cast(id_type)
    if args.output == "list":
        lists = pa.LargeListArray.from_arrays(pa.array(found.offsets), ids)
        return pa.table({"event": names, f"{what}s": lists})
    rows = np.repeat(np.arange(len(found), dtype=np.int64), found.counts)
    return pa.table({"event": names.take(pa.array(rows)), what: ids})
