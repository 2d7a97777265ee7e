"""Runs tamis_gpu_bench, which `scripts/gpu.sh` builds, and reads its lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tamis.bench.gpu.parts import Figure
from tamis.errors import ArgumentError, TamisError, UnavailableError

VARIABLE = "TAMIS_GPU_BENCH"
PRESET = Path("build/gpu/tamis_gpu_bench")


def find() -> Path:
    """The program: named by the variable, or where scripts/gpu.sh leaves it."""
    path = Path(os.environ.get(VARIABLE) or PRESET)
    if not path.is_file():
        raise UnavailableError(
            f"tamis_gpu_bench is not at {path}: build it by scripts/gpu_python.sh build, or name "
            f"it in {VARIABLE}"
        )
    return path.resolve()


def measure(part: str, share: float, on_phase: Callable[[str], None]) -> Iterator[Figure]:
    """The figures of a part; an answer that is wrong is an error, and gives none."""
    command = [str(find()), f"{share:g}", part]
    on_phase("tamis_gpu_bench")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for figure in read(process.stdout, " ".join(command)):
                if figure["figure"] == "failure":
                    raise TamisError(
                        f"{figure['engine']} on {figure['workload']}: {figure['reason']}"
                    )
                if figure["figure"] != "done":
                    on_phase(f"{figure['figure']} {figure.get('n_events', '')}".strip())
                    yield figure
        except BaseException:
            process.kill()
            raise
        reason = process.stderr.read().strip()
    if process.returncode:
        raise TamisError(f"{command[0]} ended with {process.returncode}: {reason}")


def read(lines: Iterable[str], where: str) -> Iterator[Figure]:
    """The figures of JSON lines; an `ArgumentError` names a line that is none."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            figure = json.loads(line)
        except json.JSONDecodeError as error:
            raise ArgumentError(f"{where}, line {number} must be JSON: {error}") from error
        if not isinstance(figure, dict) or "figure" not in figure:
            raise ArgumentError(f'{where}, line {number} must be an object with a "figure"')
        yield figure
