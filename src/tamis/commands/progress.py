"""How far a long command is: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

_EVERY_S = 0.1
_BAR_WIDTH = 20


class Bar:
    """One line that is written over: how much of the input, events, their speed, matches."""

    def __init__(self, stream: TextIO, is_shown: bool) -> None:
        self._stream = stream
        self._is_shown = is_shown
        self._began = time.monotonic()
        self._last_shown = 0.0
        self._phase = "matching"
        self._share: float | None = None

    def at(self, phase: str, share: float) -> None:
        """How much of the input was read."""
        if phase != self._phase:
            self._last_shown = 0.0
        self._phase, self._share = phase, min(1.0, share)
        if phase != "matching":
            self._show(phase)

    def show(self, n_events: int, n_matches: int) -> None:
        elapsed_s = max(1e-9, time.monotonic() - self._began)
        self._show(
            f"{n_events:,} events, {n_events / elapsed_s:,.0f} a second, {n_matches:,} matches"
        )

    def start(self) -> None:
        """Counts the seconds from here on."""
        self._began = time.monotonic()

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    def _show(self, text: str) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._last_shown < _EVERY_S:
            return
        self._last_shown = now
        if self._share is not None:
            done = "█" * int(self._share * _BAR_WIDTH)
            text = f"▕{done:{_BAR_WIDTH}}▏{self._share:4.0%} {text}"
        width = shutil.get_terminal_size().columns
        self._stream.write(f"\r\x1b[2K{text[: width - 1]}")
        self._stream.flush()
