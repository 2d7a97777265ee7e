"""`tamis check`: bad and suspicious predicates in a file."""

from __future__ import annotations

import argparse
from typing import Any

_EXAMPLES = """examples:
  tamis check subscriptions.parquet
  tamis check --strict alerts.csv
  tamis check predicates.txt

exit code: 0 nothing bad, 1 errors (with --strict: or warnings), 2 wrong use"""


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "check",
        help="report bad and suspicious predicates in a file",
        description="Reads every predicate of a file and reports each bad row with its place, and "
        "what is legal but surely meant otherwise.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a table with the column predicate and, if it has one, id (.parquet, .ndjson, .jsonl, "
        ".csv), or one predicate a line (.txt)",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    import pyarrow as pa

    from tamis.check import check
    from tamis.errors import ArgumentError
    from tamis.tables import read_table

    table = read_table(args.file)
    if "predicate" not in table.column_names:
        raise ArgumentError(
            f"{args.file}: a column predicate is needed, and there are only: "
            f"{', '.join(table.column_names) or 'none'}"
        )
    for name in ("id", "predicate"):
        if table.column_names.count(name) > 1:
            raise ArgumentError(f"{args.file}: the column {name} must stand once, not more often")
    if pa.types.is_binary(table.schema.field("predicate").type):
        raise ArgumentError(f"{args.file}: predicates must be text in UTF-8")
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
