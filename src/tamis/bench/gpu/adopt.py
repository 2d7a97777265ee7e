"""Figures that tamis_gpu_bench wrote where there was no Python, as a run of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tamis.bench import machine, results
from tamis.bench.gpu.native import read
from tamis.bench.gpu.parts import NATIVE, Figure
from tamis.bench.plan import Cell, Plan
from tamis.errors import ArgumentError


def adopt(file: str | Path, out: str | Path, name: str | None = None) -> Path:
    """Makes a run of the lines in `file`, and gives its folder.

    A line {"figure": "machine", ...} says where and when they were measured; a part counts where
    its last line {"figure": "done", "part": ...} is there.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"--figures must be a file that can be read: {error}") from error
    where: Figure = {}
    of_part: dict[tuple[str, float], list[Figure]] = {}
    pending: list[Figure] = []
    for figure in read(text.splitlines(), str(path)):
        if figure["figure"] == "machine":
            where = figure
        elif figure["figure"] == "done":
            if figure.get("part") in NATIVE:
                of_part[figure["part"], float(figure.get("share", 1))] = pending
            pending = []
        else:
            pending.append(figure)
    if not of_part:
        raise ArgumentError(f"{path} must have the figures of a whole part, and it has none")
    cells = {
        Cell("gpu", part, (("share", share),) if share != 1 else ()): figures
        for (part, share), figures in of_part.items()
    }
    plan = Plan(cells=tuple(cells), repeat=1, suite="gpu")
    about = _about(where)
    folder = Path(out) / (name or path.stem)
    if (folder / results.RUN_FILE).exists():
        raise ArgumentError(f"name must be new, and {folder} is a run already")
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"format": results.FORMAT, **about}
    for cell, figures in cells.items():
        result = {
            **facts,
            "id": cell.id,
            "status": "ok",
            "mode": cell.mode,
            "cell": cell.to_json(),
            "load": {},
            "lines": figures,
        }
        results.write(folder / f"{cell.id}.json", result)
    run = {**facts, "name": folder.name, "plan": plan.to_json()}
    results.write(folder / results.RUN_FILE, run)
    return folder


def _about(where: Figure) -> dict[str, Any]:
    """As the runner has it, from the line about the machine; what is not there is not known."""
    return {
        "date": where.get("date") or machine.now(),
        "command": where.get("command") or "tamis_gpu_bench",
        "machine": {
            "cpu": where.get("cpu"),
            "cores": where.get("cores"),
            "gpu": where.get("gpu"),
        },
        "versions": machine.versions(),
        "git": {"commit": where.get("commit"), "dirty": False} if where.get("commit") else None,
    }
