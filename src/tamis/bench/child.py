"""The other end of isolation.py: does one task and says so on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]


class Channel:
    """Messages to and from the parent."""

    def __init__(self) -> None:
        # What others print must not get between the messages.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._inbox: queue.Queue[Message] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Message) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def phase(self, text: str) -> None:
        self.send({"phase": text})

    def begin(self) -> None:
        """From here on the time limit counts."""
        self.send({"begin": True})

    def wait(self) -> Message:
        """The next message of the parent."""
        return self._inbox.get()

    def _read(self) -> None:
        for line in sys.stdin:
            self._inbox.put(json.loads(line))
        os._exit(1)  # the parent is gone


Task = Callable[[Message, Channel], Message]


def main() -> None:
    # If memory runs out, it is this process that goes.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    channel = Channel()
    order = channel.wait()
    try:
        result = _task(order["task"])(order["spec"], channel)
    except Exception:
        channel.send({"error": traceback.format_exc()})
        code = 1
    else:
        channel.send({"result": result})
        code = 0
    sys.stderr.flush()
    os._exit(code)  # without taking millions of subscriptions apart first


def _task(name: str) -> Task:
    from tamis.bench import inputs, live, runner

    tasks: dict[str, Task] = {
        "subscriptions": inputs.write_subscriptions,
        "stage": runner.run_stage,
        "truth": runner.write_truth,
        **live.TASKS,
    }
    return tasks[name]
