"""`tamis pipeline`: subscriptions and events from Spark's sources, matches to its sinks."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tamis.errors import ArgumentError

_EXAMPLES = """examples:
  tamis pipeline init                      writes pipeline.toml, with comments
  tamis pipeline run pipeline.toml
  tamis pipeline run pipeline.toml --master local[4] --set events.path=today.parquet
  tamis pipeline run --set index.path=alerts --set events.path=today.parquet \\
                     --set events.id=event --set matches.path=matches

It needs the extra: pip install "tamis[spark]".
Ctrl-C ends a stream when its batch is written, and cancels anything else; twice, it ends at once.
exit code: 0 done, 2 wrong use or bad input, 130 interrupted"""


def add_command(subparsers: argparse._SubParsersAction[Any]) -> None:
    parser = subparsers.add_parser(
        "pipeline",
        help="match on Spark, from sources to sinks: run, init",
        description="Runs a pipeline on Spark: builds an index, matches events, writes matches.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="run a pipeline", description="Runs a pipeline.")
    run.add_argument("file", metavar="FILE", nargs="?", help="what it does, as `init` writes it")
    run.add_argument("--master", help="where Spark runs, such as local[4] or spark://host:7077")
    run.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        help="a setting that wins over the file; lists have commas between, or are as in the file",
    )
    run.add_argument("--report", metavar="FILE", help="where the page with the report goes")
    run.set_defaults(run=_run)
    init = verbs.add_parser(
        "init", help="write an example", description="Writes an example with comments."
    )
    init.add_argument("file", metavar="FILE", nargs="?", default="pipeline.toml")
    init.set_defaults(run=_init)


def _init(args: argparse.Namespace) -> int:
    from tamis.spark.pipeline import EXAMPLE

    path = Path(args.file)
    if path.exists():
        raise ArgumentError(f"{path}: exists already; name another file")
    path.write_text(EXAMPLE, encoding="utf-8")
    print(f"{path}: edit it, then: tamis pipeline run {path}")
    return 0


def _run(args: argparse.Namespace) -> int:
    from tamis.spark.pipeline import read_config, run_pipeline

    settings = {}
    for text in args.set:
        name, sign, value = text.partition("=")
        if not sign or "." not in name:
            raise ArgumentError(f"--set must be like events.path=today.parquet, not {text!r}")
        settings[name] = value
    if args.master:
        settings["spark.master"] = args.master
    if args.report:
        settings["report.path"] = args.report
    if args.file is None and not settings:
        raise ArgumentError("a file is needed: tamis pipeline init writes one")
    config = read_config(args.file, settings)
    line = _Line(sys.stderr.isatty())
    try:
        report = run_pipeline(config, line.show)
    finally:
        line.clear()
    print("\n".join(report.lines()))
    if config.report.path:
        try:
            report.write_html(config.report.path)
        except OSError as error:  # the matches are written all the same
            print(f"report     not written: {error}")
        else:
            print(f"report     {config.report.path}")
    return 0


class _Line:
    """One line that is written over, on a terminal; nothing elsewhere."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._began = time.monotonic()

    def show(self, text: str, share: float | None) -> None:
        if self._is_shown:
            percent = "" if share is None else f"{share:4.0%} "
            took = time.monotonic() - self._began
            width = shutil.get_terminal_size().columns
            line = f"{percent}{text} ({took:.0f} s)"
            sys.stderr.write(f"\r\x1b[2K{line[: width - 1]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
