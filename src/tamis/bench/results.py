"""Runs on disk: a folder with `run.json`, the plan, and one JSON file for each cell.

    bench-results/<name>/run.json
                         latency-pcm-default-naive-1a2b3c4d.json      finished, or not there

Files are written aside and renamed, so whoever reads sees whole files only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamis.bench.plan import Cell, Plan
from tamis.errors import ArgumentError

FORMAT = 1
# Wrong and failed cells are tried again when a run is resumed; those over their time are not.
FINISHED = ("ok", "capped")
RUN_FILE = "run.json"
WORK_FOLDER = ".work"  # of inputs.py
PRESET_OUT = "bench-results"

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run that is on disk, finished or not."""

    path: Path
    about: dict[str, Any]
    cells: list[Result]

    @property
    def plan(self) -> Plan:
        return Plan.from_json(self.about["plan"])

    @property
    def is_complete(self) -> bool:
        """Does every cell of the plan have its file?"""
        return len(self.cells) == len(self.about["plan"]["cells"])

    @property
    def is_ok(self) -> bool:
        """Is every cell there, and none wrong or failed? One may have been over its time."""
        return self.is_complete and all(cell["status"] in FINISHED for cell in self.cells)


def cell_of(result: Result) -> Cell:
    """The cell that a result belongs to."""
    return Cell.from_json(result["cell"])


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes aside, syncs and renames; what fails or is interrupted leaves nothing behind."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, ensure_ascii=False, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any]:
    """A file of a run; anything else is an `ArgumentError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ArgumentError(f"{path} must be a file of a benchmark run: {error}") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise ArgumentError(f"{path} must be a benchmark file of format {FORMAT}, not {found!r}")
    return dict(content)


def load(path: str | Path) -> Run:
    """The run in a folder, or the one cell in a file."""
    path = Path(path)
    if path.is_file() and path.name != RUN_FILE:
        result = read(path)
        if "cell" not in result:
            raise ArgumentError(f"{path} must be the file of a cell")
        plan = Plan(cells=(cell_of(result),), baseline=result["cell"]["engine"])
        about = {key: result[key] for key in ("date", "machine", "versions", "git", "command")}
        return Run(path, {**about, "name": path.stem, "plan": plan.to_json()}, [result])
    folder = path.parent if path.name == RUN_FILE else path
    if not (folder / RUN_FILE).is_file():
        raise ArgumentError(f"{folder} must be the folder of a run, and it has no {RUN_FILE}")
    about = read(folder / RUN_FILE)
    results = [
        read(folder / f"{cell['id']}.json")
        for cell in about["plan"]["cells"]
        if (folder / f"{cell['id']}.json").is_file()
    ]
    return Run(folder, about, results)


def find(run: str, out: str | Path) -> Path:
    """A run given as a path, or by its name in the results folder."""
    for path in (Path(run), Path(out) / run):
        if path.exists():
            return path
    raise ArgumentError(f"{run} must be a run: a folder, a file of a cell, or a name in {out}")


def runs(out: str | Path) -> list[Run]:
    """The runs in a results folder, oldest first; folders that are not runs are passed over."""
    found = []
    for file in Path(out).glob(f"*/{RUN_FILE}"):
        try:
            found.append(load(file.parent))
        except ArgumentError:
            continue
    return sorted(found, key=lambda run: (run.about["date"], run.path.name))


def remove_leftovers(folder: Path) -> None:
    """Removes what a killed process had written aside."""
    shutil.rmtree(folder / WORK_FOLDER, ignore_errors=True)
    for aside in folder.glob(".*.tmp"):
        aside.unlink(missing_ok=True)
