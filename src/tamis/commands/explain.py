"""`tamis explain`: why an event matches a subscription, or why not."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any

from tamis.commands.arguments import names_pair
from tamis.errors import ArgumentError, EventError

_EXAMPLES = """examples:
  tamis explain subscriptions.csv s1 '{"area": "north", "temp": 25}'
  tamis explain --predicate "temp > 30" '{"temp": 25}'
  tamis explain --space earth --at -73.97,40.78 fences.parquet 7 '{"kind": "offer"}'
  tamis explain --json --predicate "temp > 30 OR wind > 20" '{"temp": 25}'

exit code: 0 it matched, 1 it did not, 2 wrong use or bad input"""


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="show why an event matches a subscription, or why not",
        usage="tamis explain [options] SUBSCRIPTIONS ID EVENT\n"
        "       tamis explain [options] --predicate PREDICATE EVENT",
        description="Shows every constraint of a predicate: whether it held (✓), failed (✗) or is "
        "unknown (?) for the event, and why.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # A pair like -73.97,40.78 is a value and no option; Python 3.14 sees that by itself.
    parser._negative_number_matcher = re.compile(r"-\.?\d")
    parser.add_argument(
        "subscriptions",
        metavar="SUBSCRIPTIONS",
        nargs="?",
        help="a table with the columns id, predicate and perhaps subscriber (.parquet, .ndjson, "
        ".jsonl, .csv)",
    )
    parser.add_argument("id", metavar="ID", nargs="?", help="the subscription's id")
    parser.add_argument(
        "event", metavar="EVENT", help="the event, a JSON object; nested objects are outer.inner"
    )
    parser.add_argument(
        "--predicate", metavar="PREDICATE", help="the predicate itself, instead of a file and an id"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--at", metavar="X,Y", type=_coordinates, help="the event's position")
    where.add_argument(
        "--position",
        metavar="X,Y",
        type=names_pair,
        help="the two attributes that hold the event's position",
    )
    parser.add_argument(
        "--space",
        choices=("plane", "earth"),
        default="plane",
        help="what positions mean; earth: longitude, latitude, metres (default: plane)",
    )
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")
    parser.set_defaults(run=_run, fail=parser.error)


def _coordinates(text: str) -> tuple[float, float]:
    try:
        x, y = (float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be two numbers with a comma between, like 13.4,52.5, not {text!r}"
        ) from None
    return x, y


def _run(args: argparse.Namespace) -> int:
    from tamis.explain import explain
    from tamis.language import parse

    if args.predicate is None and (args.subscriptions is None or args.id is None):
        args.fail("SUBSCRIPTIONS and ID are needed, or --predicate (options stand before them)")
    if args.predicate is not None and args.subscriptions is not None:
        args.fail("either --predicate or SUBSCRIPTIONS and ID, not both")
    text = args.predicate
    if text is None:
        text = _predicate_of(args.subscriptions, args.id)
    event, at = _event_of(args.event, text, args.position, args.space)
    found = explain(parse(text), event, args.at or at, args.space)
    if args.json:
        print(
            json.dumps({"matched": found.matched, **found.to_dict()}, ensure_ascii=False, indent=2)
        )
    else:
        print(found)
        print("it matches" if found.matched else _verdict(found.failed))
    return 0 if found.matched else 1


def _verdict(failed: list[Any]) -> str:
    shown = "; ".join(each.reason for each in failed[:3])
    more = f"; and {len(failed) - 3:,} more" if len(failed) > 3 else ""
    return f"it does not match: {shown}{more}"


def _predicate_of(path: str, id: str) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tamis.tables import read_subscriptions

    table = read_subscriptions(path)
    ids = table.column("id")
    wanted: int | str = id
    if pa.types.is_integer(ids.type):
        try:
            wanted = int(id)
        except ValueError:
            raise ArgumentError(f"{path}: its ids are integers, and {id!r} is none") from None
    rows = pc.indices_nonzero(pc.equal(ids, wanted))
    if len(rows) == 0:
        raise ArgumentError(f"{path}: no subscription has the id {wanted!r}")
    text: str = table.column("predicate")[rows[-1].as_py()].as_py()  # the last row replaces others
    return text


def _event_of(
    text: str, predicate: str, position: tuple[str, str] | None, space: str
) -> tuple[dict[str, Any], tuple[Any, Any] | None]:
    """The event, and its position where attributes hold it."""
    from tamis.matcher import Matcher

    # The core reads it first, so that both accept and refuse the same.
    matcher = Matcher(engine="naive", space=space, threads=1)
    matcher.subscribe(0, predicate)
    n_events = len(matcher.match_json(text.replace("\n", " "), position=position))
    if n_events != 1:
        raise EventError("EVENT must be one JSON object, not nothing")
    event = dict(_flat(json.loads(text), ""))
    if position is None:
        return event, None
    x, y = (event.get(name) for name in position)
    return event, None if x is None or y is None else (x, y)


def _flat(event: dict[str, Any], prefix: str) -> Any:
    for key, value in event.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value
