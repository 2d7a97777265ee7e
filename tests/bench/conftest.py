"""One tiny run for all tests that only read; and the command line as the tests call it."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

import tamis.bench
from tamis.bench.cli import add_commands

Main = Callable[..., int]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tamis.bench.Run:
    """The suite `smoke`, run once. Tests must not change its files."""
    return tamis.bench.run(
        suite="smoke",
        max_seconds=300,  # on a busy machine the suite's own limit cuts repetitions
        out=tmp_path_factory.mktemp("results"),
        name="smoke",
    )


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> tamis.bench.Run:
    """The suite `live` at a tiny size, run once. Tests must not change its files."""
    return tamis.bench.run(
        suite="live",
        overrides={"n_subscriptions": 300},
        engines=["ocm"],
        repeat=1,
        max_seconds=1,
        out=tmp_path_factory.mktemp("results"),
        name="live",
    )


@pytest.fixture
def main() -> Main:
    """`tamis` with the arguments given, in this process; gives the exit code."""

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser(prog="tamis")
        add_commands(parser.add_subparsers(required=True))
        args = parser.parse_args(arguments)
        code = args.run(args)
        assert isinstance(code, int)
        return code

    return run
