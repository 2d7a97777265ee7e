"""The command `tamis`: the parser, and what all commands have in common."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

import tamis
from tamis.errors import TamisError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; gives back its exit code: 0 done, 1 found something, 2 used wrongly."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stream that a test put there
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    args = _parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe has seen enough
        with contextlib.suppress(OSError, ValueError):
            # What is still buffered goes nowhere, or Python would complain when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (TamisError, OSError) as error:
        print(f"tamis: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"tamis: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    from tamis.bench.cli import add_commands
    from tamis.commands import check, engines, explain, index, match, pipeline

    parser = argparse.ArgumentParser(
        prog="tamis",
        description="Which of millions of standing subscriptions does this event satisfy?",
        epilog="`tamis COMMAND --help` has examples.",
    )
    parser.add_argument("--version", action="version", version=f"tamis {tamis.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (match, explain, check, index, engines, pipeline):
        command.add_command(commands)
    add_commands(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
