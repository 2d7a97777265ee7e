"""`tamis engines`: every engine and what it can do."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

_EXAMPLES = """examples:
  tamis engines
  tamis engines --json | jq '.[] | select(.available) | .name'"""


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "engines",
        help="list the engines and what each can do",
        description="Lists every engine: where it runs, whether it is exact, and whether it is "
        "available here.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array with everything")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from tamis.engines import engines

    if args.json:
        facts = [
            {**dataclasses.asdict(engine), "available": engine.available} for engine in engines()
        ]
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    for engine in engines():
        state = "available" if engine.available else f"unavailable: {engine.unavailable}"
        kind = "exact" if engine.exact else "approximate"
        print(f"{engine.name:17} {engine.device:5} {kind:12} {engine.description} ({state})")
        for parameter in engine.parameters:
            print(
                f"    {parameter.name} = {parameter.preset:g} "
                f"({parameter.low:g} to {parameter.high:g}): {parameter.meaning}"
            )
    return 0
