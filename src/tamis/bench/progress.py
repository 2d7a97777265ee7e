"""How far a run is: one line that changes on a terminal, a line for each cell elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tamis.bench.plan import Cell


@dataclass(frozen=True)
class Progress:
    """Where a run is: `cell` is number `place` of `n_cells`; `status` is set once it is done."""

    place: int
    n_cells: int
    cell: Cell
    phase: str
    elapsed_s: float
    status: str = ""
    detail: str = ""

    def __str__(self) -> str:
        words = [
            f"[{self.place}/{self.n_cells}]",
            self.cell.mode,
            self.cell.workload_label,
            self.cell.engine_label,
            f"{self.status}{': ' if self.detail else ''}{self.detail}" or self.phase,
            f"({self.elapsed_s:.0f} s)",
        ]
        return " ".join(word for word in words if word)


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Says nothing."""


def lines(stream: TextIO) -> OnProgress:
    """A line for each finished cell."""

    def show(progress: Progress) -> None:
        if progress.status:
            print(progress, file=stream, flush=True)

    return show


def updating_line(stream: TextIO, every_s: float = 0.1) -> OnProgress:
    """One line that is written over; what is not a plain success stays."""
    last_shown = 0.0

    def show(progress: Progress) -> None:
        nonlocal last_shown
        now = time.monotonic()
        stays = progress.status not in ("", "ok")
        is_last = bool(progress.status) and progress.place == progress.n_cells
        if not (stays or is_last) and now - last_shown < every_s:
            return
        last_shown = now
        width = shutil.get_terminal_size().columns
        text = str(progress) if stays else str(progress)[: width - 1]
        stream.write(f"\r\x1b[2K{text}" + ("\n" if stays or is_last else ""))
        stream.flush()

    return show


def for_stream(stream: TextIO) -> OnProgress:
    """What suits the stream."""
    return updating_line(stream) if stream.isatty() else lines(stream)
