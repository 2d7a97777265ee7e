"""`tamis index`: a matcher in a directory, built and changed from files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tamis.commands.arguments import names_pair
from tamis.errors import ArgumentError, BatchError
from tamis.matcher import Matcher
from tamis.tables import read_subscriptions, read_table

_EXAMPLES = """examples:
  tamis index build alerts subscriptions.parquet
  tamis index add alerts more.csv
  tamis index remove alerts gone.csv
  tamis index info alerts
  tamis index plan alerts --events readings.parquet
  tamis index verify alerts

exit code: 0 done, 1 verify found damage, 2 wrong use or bad input"""

_MOST_EVENTS = 10_000  # that a plan is made for: the matcher keeps a sample


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "index",
        help="keep subscriptions in a directory: build, add, remove, info, plan, verify",
        description="Keeps subscriptions in a directory that tamis.Matcher.open opens.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def add(name: str, help: str, run: Any) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(
            name, help=help, description=help[0].upper() + help[1:] + "."
        )
        verb.add_argument("index", metavar="INDEX", help="the directory")
        verb.set_defaults(run=run)
        return verb

    build = add("build", "make a new directory from a file of subscriptions", _build)
    build.add_argument("file", metavar="FILE", help="a table with id, predicate and subscriber")
    build.add_argument("--space", choices=("plane", "earth"), default="plane")
    adding = add("add", "add or replace the subscriptions of a file, all or none", _add)
    adding.add_argument("file", metavar="FILE", help="a table with id, predicate and subscriber")
    removing = add("remove", "remove the subscriptions of a file, all or none", _remove)
    removing.add_argument("file", metavar="FILE", help="a table with the column id")
    info = add("info", "say what is in it", _info)
    info.add_argument("--json", action="store_true", help="as JSON")
    planning = add("plan", "say which engine has which filters, and why", _plan)
    planning.add_argument(
        "--events",
        metavar="FILE",
        help="a table of events: plan for them, instead of telling the plan that is there",
    )
    planning.add_argument(
        "--position",
        metavar="X,Y",
        type=names_pair,
        help="the two attributes that hold an event's position",
    )
    planning.add_argument("--json", action="store_true", help="as JSON")
    add("verify", "read everything and say whether it is whole", _verify)


def _build(args: argparse.Namespace) -> int:
    path = Path(args.index)
    if path.exists():
        raise ArgumentError(f"{path}: exists already; add to it, or build under another name")
    table = read_subscriptions(args.file)
    matcher = Matcher(space=args.space)
    _take(matcher, table, args.file)
    matcher.save(path)
    print(f"{path}: {len(matcher)} subscriptions")
    return 0


def _add(args: argparse.Namespace) -> int:
    table = read_subscriptions(args.file)
    with Matcher.open(args.index) as matcher:
        n_before = len(matcher)
        _take(matcher, table, args.file)
        n_new = len(matcher) - n_before
        print(
            f"{args.index}: {n_new} added, {table.num_rows - n_new} replaced, {len(matcher)} in all"
        )
    return 0


def _take(matcher: Matcher, table: Any, file: str) -> None:
    try:
        matcher.subscribe_many(table)
    except BatchError as error:
        raise BatchError(f"{file}: {error}", error.errors) from None


def _remove(args: argparse.Namespace) -> int:
    table = read_table(args.file)
    if "id" not in table.column_names:
        raise ArgumentError(f"{args.file}: a column id is needed")
    ids = table.column("id").to_pylist()
    with Matcher.open(args.index) as matcher:
        matcher.unsubscribe_many(ids)
        print(f"{args.index}: {len(set(ids))} removed, {len(matcher)} in all")
    return 0


def _info(args: argparse.Namespace) -> int:
    with Matcher.open(args.index, read_only=True) as matcher:
        stats = matcher.stats()
    if args.json:
        print(json.dumps(stats, indent=2))
        return 0
    print(f"subscriptions  {stats['n_subscriptions']}")
    print(f"subscribers    {stats['n_subscribers']}")
    print(f"attributes     {stats['n_attributes']}")
    print(f"space          {stats['space']}")
    print(f"image          {stats['n_image_bytes']} bytes")
    print(f"logs           {stats['n_logs']}, {stats['n_log_bytes']} bytes")
    return 0


def _plan(args: argparse.Namespace) -> int:
    with Matcher.open(args.index, read_only=True) as matcher:
        if args.events:
            events = read_table(args.events).slice(0, _MOST_EVENTS)
            matcher.match_many(events, position=args.position, output="count")
        matcher.flush()
        plan = matcher.plan()
    print(json.dumps(plan.to_dict(), indent=2) if args.json else plan)
    return 0


def _verify(args: argparse.Namespace) -> int:
    from tamis.errors import StorageError

    try:
        with Matcher.open(args.index, read_only=True, verify=True) as matcher:
            print(f"{args.index}: whole, {len(matcher)} subscriptions")
    except StorageError as error:
        print(f"tamis: {error}", file=sys.stderr)
        return 1
    return 0
