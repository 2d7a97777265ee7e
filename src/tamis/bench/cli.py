"""`tamis bench run|list|compare|show|report`."""

from __future__ import annotations

import argparse
import functools
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tamis
from tamis import workloads
from tamis.bench import comparison, plots, progress, report, results, runner, tables
from tamis.bench import plan as plans
from tamis.bench.gpu.adopt import adopt
from tamis.bench.gpu.parts import PARTS
from tamis.bench.suites import SUITES
from tamis.errors import ArgumentError, TamisError

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

_RUN_EXAMPLES = """examples:
  tamis bench run --suite smoke
  tamis bench run --workload pcm-default --engine naive --mode latency --events 500
  tamis bench run --workload hem-default --set n_subscriptions=1000,10000 --repeat 5
  tamis bench run --workload hem-default --engine hem --param g=16,32,64 --threads 1
  tamis bench run --mode encode --mode parse
  tamis bench run --suite gpu --part bounds --part tuple-key-cuda
  tamis bench run --resume bench-results/20261115T101500-defaults

Every answer is checked: the engine naive says what is right, and a wrong answer gives no number.
The exit code is 0, or 1 if a cell is wrong or failed, or 130 after Ctrl-C."""

_COMPARE_RULE = f"""The verdict is on the minimum CPU time per unit, new / old. It is noise
  - if either side has fewer than {comparison.MIN_REPETITIONS} repetitions, or
  - if the intervals from minimum to median overlap, or
  - if the change is smaller than the wider of these intervals (in per cent), or
  - if the change is at most {comparison.NOISE_FLOOR:.0%};
else it is an improvement (ratio below 1) or a regression (above 1).

examples:
  tamis bench compare before after
  tamis bench compare bench-results/before bench-results/after --fail-on-regression
  tamis bench compare a/latency-x.json b/latency-x.json"""

_SHOW_EXAMPLES = """examples:
  tamis bench show before
  tamis bench show bench-results/before --html before.html
  tamis bench show before --markdown >> docs/benchmarks/notes.md"""

Command = Callable[[argparse.Namespace], int]


def add_commands(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the command `bench` with its subcommands to the parser of `tamis`."""
    bench = subparsers.add_parser(
        "bench",
        help="measure engines, and compare measurements",
        description="Measure engines on workloads, with every answer checked.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="see `tamis bench run --help`, and docs/benchmark.md",
    )
    commands = bench.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_run(commands)
    _add_list(commands)
    _add_compare(commands)
    _add_show(commands)
    _add_report(commands)


def _add(
    commands: argparse._SubParsersAction[Any], name: str, help: str, epilog: str, run: Command
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        default=results.PRESET_OUT,
        metavar="FOLDER",
        help="the results folder (default: %(default)s)",
    )
    parser.set_defaults(run=run)
    return parser


def _reports_errors(command: Command) -> Command:
    """Errors of the user's input become a line on stderr and the exit code 2."""

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except TamisError as error:
            print(f"tamis bench: {error}", file=sys.stderr)
            return EXIT_USAGE

    return run


def _add_run(commands: argparse._SubParsersAction[Any]) -> None:
    parser = _add(commands, "run", "measure a suite or a grid of cells", _RUN_EXAMPLES, _run)
    what = parser.add_argument_group("what to measure")
    what.add_argument("--suite", metavar="NAME", help=f"a named grid: {', '.join(SUITES)}")
    what.add_argument(
        "--workload", action="append", default=[], metavar="KEY", help="may be given several times"
    )
    what.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the workloads that have it; KEY:NAME=VALUE for one alone; "
        "values with commas between make cells of their own",
    )
    what.add_argument("--seed", type=int, help="of the workloads (default: 1)")
    what.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="NAME",
        help="may be given several times (default: all available)",
    )
    what.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the engines that have it; ENGINE:NAME=VALUE for one alone; commas "
        "as with --set",
    )
    what.add_argument(
        "--threads", type=int, action="append", default=[], metavar="N", help="(default: 1)"
    )
    what.add_argument(
        "--mode",
        action="append",
        default=[],
        metavar="MODE",
        help=f"{', '.join(plans.MODES)}; may be given several times "
        "(default: latency and throughput)",
    )
    what.add_argument(
        "--part",
        action="append",
        default=[],
        metavar="PART",
        help="of the suite gpu (default: all); may be given several times: " + ", ".join(PARTS),
    )
    what.add_argument(
        "--figures",
        metavar="FILE",
        help="lines that tamis_gpu_bench wrote on another machine become a run of the suite gpu, "
        "and nothing is measured",
    )
    what.add_argument("--deliver", choices=plans.DELIVERS, help="(default: subscriptions)")
    what.add_argument("--output", choices=plans.OUTPUTS, help="(default: ids)")
    how = parser.add_argument_group("how to measure")
    how.add_argument("--events", type=int, metavar="N", help="(default: the workload's own number)")
    how.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help=f"events of a batch in the mode throughput (default: {plans.PRESET_BATCH})",
    )
    how.add_argument("--repeat", type=int, metavar="N", help=f"(default: {plans.PRESET_REPEAT})")
    how.add_argument(
        "--max-seconds",
        type=float,
        metavar="S",
        help="for a cell: caps repetitions and then events, and the file says so "
        f"(default: {plans.PRESET_MAX_SECONDS:g})",
    )
    how.add_argument(
        "--sequential",
        action="store_true",
        help="one engine in memory at a time; repetitions are then not interleaved",
    )
    how.add_argument(
        "--cell-seconds",
        type=float,
        metavar="S",
        help="each engine in a process of its own, which is killed after so many seconds of "
        "deploying, checking and measuring; its cells are then recorded as capped",
    )
    how.add_argument("--baseline", metavar="ENGINE", help="of the ratios (default: the first)")
    where = parser.add_argument_group("where to")
    where.add_argument(
        "--name", help="of the run (default: the time); a run of that name is resumed"
    )
    where.add_argument("--resume", metavar="RUN", help="finish a run that was interrupted")
    where.add_argument("--quiet", action="store_true", help="no progress, no tables")


@_reports_errors
def _run(args: argparse.Namespace) -> int:
    folder = _folder_of(args)
    on_progress = progress.ignore if args.quiet else progress.for_stream(sys.stderr)
    try:
        done = runner.run_plan(folder, on_progress)
    except KeyboardInterrupt:
        print(
            f"\ninterrupted; to go on: tamis bench run --resume {folder}",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_INTERRUPTED
    if not args.quiet:
        print(tables.show(done, color=sys.stdout.isatty()))
        print(f"{len(done.cells)} cells in {done.path}")
    return EXIT_OK if done.is_ok else EXIT_FAILED


def _folder_of(args: argparse.Namespace) -> Path:
    if args.resume is not None:
        planned = (
            "suite",
            "workload",
            "set",
            "seed",
            "engine",
            "param",
            "threads",
            "mode",
            "deliver",
            "output",
            "events",
            "batch",
            "repeat",
            "max_seconds",
            "sequential",
            "cell_seconds",
            "baseline",
            "part",
            "figures",
            "name",
        )
        for option in planned:
            if getattr(args, option) not in (None, [], False):
                flag = option.replace("_", "-")
                raise ArgumentError(f"--{flag} must not be given with --resume: the plan is there")
        folder = results.find(args.resume, args.out)
        if not (folder / results.RUN_FILE).is_file():
            raise ArgumentError(f"--resume must be the folder of a run, not {folder}")
        return folder
    if args.figures is not None:
        return adopt(args.figures, args.out, args.name)
    if args.suite is None and not args.workload and not args.mode:
        raise ArgumentError(
            "something to measure must be given: --suite, --workload or --mode encode or parse; "
            "see tamis bench list"
        )
    plan = plans.make(
        suite=args.suite,
        workloads=args.workload,
        engines=args.engine,
        modes=args.mode,
        overrides=_assignments("--set", args.set),
        seed=args.seed,
        parameters=_assignments("--param", args.param),
        threads=args.threads,
        events=args.events,
        batch=args.batch,
        deliver=args.deliver,
        output=args.output,
        repeat=args.repeat,
        max_seconds=args.max_seconds,
        sequential=args.sequential,
        cell_seconds=args.cell_seconds,
        baseline=args.baseline,
        parts=args.part,
    )
    if not args.quiet:
        for note in plan.notes:
            print(f"note: {note}", file=sys.stderr)
    return runner.start(plan, args.out, args.name)


def _assignments(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE or NAME=VALUE,VALUE as a dict; values are numbers or booleans where they can."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ArgumentError(f"{option} must be NAME=VALUE, not {text!r}")
        values = [_value_of(each) for each in value.split(",")]
        found[name] = values if len(values) > 1 else values[0]
    return found


def _value_of(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            continue
    return text


def _add_list(commands: argparse._SubParsersAction[Any]) -> None:
    parser = _add(
        commands,
        "list",
        "show the workloads, engines, suites and modes there are, and past runs",
        "examples:\n  tamis bench list\n  tamis bench list engines\n  tamis bench list runs",
        _list,
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=["workloads", "engines", "suites", "modes", "runs"],
        help="(default: all of them)",
    )


@_reports_errors
def _list(args: argparse.Namespace) -> int:
    makers: dict[str, Callable[[], list[str]]] = {
        "workloads": _list_workloads,
        "engines": _list_engines,
        "suites": lambda: [f"{name}: {suite['description']}" for name, suite in SUITES.items()],
        "modes": lambda: [f"{name}: {meaning}" for name, meaning in plans.MODE_MEANINGS.items()],
        "runs": lambda: _list_runs(args.out),
    }
    for name in [args.what] if args.what else makers:
        print(name)
        for line in makers[name]():
            print(f"  {line}")
    return EXIT_OK


def _list_workloads() -> list[str]:
    lines = []
    for family in workloads.families():
        keys = workloads.keys(family)
        default = workloads.get(keys[0])
        lines.append(f"{family}: {default.source} - {default.description}")
        lines += textwrap.wrap(
            " ".join(keys), 96, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return lines


def _list_engines() -> list[str]:
    lines = []
    for engine in tamis.engines():
        notes = "" if engine.exact else ", approximate"
        notes += "" if engine.available else f"; not here: {engine.unavailable}"
        lines.append(f"{engine.name} ({engine.device}): {engine.description}{notes}")
        lines += [
            f"  --param {engine.name}:{each.name}={each.preset:g}: {each.meaning}, from "
            f"{each.low:g} to {each.high:g}"
            for each in engine.parameters
        ]
    return lines


def _list_runs(out: str) -> list[str]:
    lines = []
    for run in results.runs(out):
        statuses = [each["status"] for each in run.cells]
        bad = len(statuses) - statuses.count("ok")
        lines.append(
            f"{run.path.name}: {run.about['date']}, {len(run.cells)} of "
            f"{len(run.about['plan']['cells'])} cells"
            + (f", {bad} without a number" if bad else "")
        )
    return lines or [f"none in {out}"]


def _add_compare(commands: argparse._SubParsersAction[Any]) -> None:
    parser = _add(
        commands,
        "compare",
        "say what became faster or slower between two runs, and what is noise",
        _COMPARE_RULE,
        _compare,
    )
    parser.add_argument("old", metavar="A", help="a run: its folder, a file of it, or its name")
    parser.add_argument("new", metavar="B", help="the run to compare with it")
    parser.add_argument(
        "--fail-on-regression", action="store_true", help="exit code 1 if there is a regression"
    )


@_reports_errors
def _compare(args: argparse.Namespace) -> int:
    old, new = (results.load(results.find(each, args.out)) for each in (args.old, args.new))
    found = comparison.compare(old, new)
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(tables.show_comparison(found))
    return EXIT_FAILED if args.fail_on_regression and found.has_regression else EXIT_OK


def _add_show(commands: argparse._SubParsersAction[Any]) -> None:
    parser = _add(commands, "show", "show a run as tables, bars or plots", _SHOW_EXAMPLES, _show)
    parser.add_argument("which", metavar="RUN", help="its folder, a file of it, or its name")
    parser.add_argument("--markdown", action="store_true", help="tables for a document")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots and tables")
    parser.add_argument(
        "--png", metavar="FILE", help="write plots; FILE-mode.png if there are several modes"
    )


@_reports_errors
def _show(args: argparse.Namespace) -> int:
    run = results.load(results.find(args.which, args.out))
    written: list[Path] = []
    if args.html:
        written += plots.write_html(run, args.html)
    if args.png:
        written += plots.write_png(run, args.png)
    for path in written:
        print(f"wrote {path}")
    if not written:
        color = sys.stdout.isatty() and not args.markdown
        print(tables.show(run, markdown=args.markdown, color=color), end="")
    return EXIT_OK


def _add_report(commands: argparse._SubParsersAction[Any]) -> None:
    parser = _add(
        commands,
        "report",
        "write a run as a page of Markdown with its plots beside it",
        "examples:\n  tamis bench report papers docs/benchmarks/papers.md",
        _report,
    )
    parser.add_argument("which", metavar="RUN", help="its folder, a file of it, or its name")
    parser.add_argument("file", metavar="FILE", help="the page to write, which ends in .md")
    parser.add_argument("--title", help="of the page (default: from its name)")


@_reports_errors
def _report(args: argparse.Namespace) -> int:
    if not args.file.endswith(".md"):
        raise ArgumentError(f"FILE must end in .md, not be {args.file}")
    run = results.load(results.find(args.which, args.out))
    for path in report.write(run, args.file, args.title):
        print(f"wrote {path}")
    return EXIT_OK
