"""The command `tamis`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import tamis
from tamis.errors import TamisError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives back its exit code: 0 done, 1 found something, 2 used wrongly."""
    parser = _parser()
    args = parser.parse_args(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except TamisError as error:
        print(f"tamis: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("tamis: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tamis",
        description="Which of millions of standing subscriptions does this event satisfy?",
    )
    parser.add_argument("--version", action="version", version=f"tamis {tamis.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_check(commands)
    _add_engines(commands)
    from tamis.bench.cli import add_commands

    add_commands(commands)
    return parser


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="report bad and suspicious predicates in a file",
        description="Reads every predicate of a file and reports each bad row with its place, and "
        "what is legal but surely meant otherwise.",
        epilog="Exit code: 0 nothing bad, 1 errors (with --strict: or warnings), 2 wrong use.",
    )
    parser.add_argument(
        "file",
        help="a table with the column predicate and, if it has one, id (.parquet, .ndjson, .jsonl, "
        ".csv), or one predicate a line (.txt)",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.set_defaults(run=_check)


def _check(args: argparse.Namespace) -> int:
    from tamis.check import check
    from tamis.errors import ArgumentError
    from tamis.tables import read_table

    table = read_table(args.file)
    if "predicate" not in table.column_names:
        raise ArgumentError(
            f"{args.file}: a column predicate is needed, and there are only: "
            f"{', '.join(table.column_names) or 'none'}"
        )
    label = "line" if str(args.file).endswith(".txt") else "id"
    rows = (
        [f"{label} {value}" for value in table.column("id").to_pylist()]
        if "id" in table.column_names
        else [f"row {row}" for row in range(table.num_rows)]
    )
    texts = table.column("predicate").to_pylist()
    texts = [text if isinstance(text, str) or text is None else str(text) for text in texts]
    report = check(zip(rows, texts, strict=True))
    for finding in report.findings:
        kind = "error" if finding.is_error else f"warning ({finding.lint})"
        print(f"{args.file}: {finding.row}: {kind}: {finding.message}")
    print(
        f"{report.n_predicates} predicates, {report.n_errors} errors, {report.n_warnings} warnings"
    )
    return 1 if report.n_errors or (args.strict and report.n_warnings) else 0


def _add_engines(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "engines",
        help="list the engines and what each can do",
        description="Lists every engine: where it runs, whether it is exact, and whether it is "
        "available here.",
    )
    parser.set_defaults(run=_engines)


def _engines(args: argparse.Namespace) -> int:
    for engine in tamis.engines():
        state = "available" if engine.available else f"unavailable: {engine.unavailable}"
        kind = "exact" if engine.exact else "approximate"
        print(f"{engine.name:14} {engine.device:5} {kind:12} {engine.description} ({state})")
        for parameter in engine.parameters:
            print(
                f"    {parameter.name} = {parameter.preset:g} "
                f"({parameter.low:g} to {parameter.high:g}): {parameter.meaning}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
