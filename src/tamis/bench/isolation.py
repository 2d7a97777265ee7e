"""Work in a process of its own: a fresh Python that can be killed, and whose memory is its own.

    parent                                   child (child.py)
    Child(task, spec)      ── spec ──────►   TASKS[task](spec, channel)
    receive()              ◄── messages ──   {"phase": …}  {"begin": true}  {"result": …}
    send({…})              ── messages ──►   channel.wait()

Messages are JSON, one a line. A child ends when its parent does: its standard input closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

Message = dict[str, Any]

# Packages named as arguments are as if they were not installed.
_START = """
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name in sys.argv[1:]:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
from tamis.bench.child import main
main()
"""


class ExpiredError(Exception):
    """A child was killed because its time was over; the text says what it was at."""


class ChildError(Exception):
    """A child failed; the text is its traceback, or the signal that killed it."""


class Child:
    """A process that does one task. Leaving the `with` block kills what is left of it.

    `without` names packages that it must not load, where its memory is measured.
    """

    def __init__(self, task: str, spec: Mapping[str, Any], without: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *without],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is the parent's to answer
        )
        self._inbox: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.send({"task": task, "spec": dict(spec)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: receive() says why
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message; `queue.Empty` after the time, `ChildError` if there comes none."""
        message = self._inbox.get(timeout=timeout_s)
        if message is None:
            code = self._process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise ChildError(f"the process ended without a result: {how}")
        if "error" in message:
            raise ChildError(message["error"])
        return message

    def kill(self) -> None:
        """Ends the process and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed meanwhile
            for line in self._process.stdout:
                self._inbox.put(json.loads(line))
        self._inbox.put(None)


def call(
    task: str,
    spec: Mapping[str, Any],
    *,
    limit_s: float | None = None,
    without: Sequence[str] = (),
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Message:
    """The result of a task. Its time counts from when it says that it begins."""
    phase, deadline = "starting", None
    with Child(task, spec, without) as child:
        while True:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                message = child.receive(left_s)
            except queue.Empty:
                raise ExpiredError(f"not finished after {limit_s:g} s: {phase}") from None
            if "result" in message:
                return dict(message["result"])
            if message.get("begin") and limit_s is not None:
                deadline = time.monotonic() + limit_s
            if "phase" in message:
                phase = message["phase"]
                on_phase(phase)
