"""The snippets of docs/benchmark.md run, top to bottom, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.M | re.S)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    n_commands = 0
    for kind, body in FENCE.findall(PAGE.read_text()):
        if kind == "python":
            exec(compile(body, str(PAGE), "exec"), names)
            continue
        for line in body.splitlines():
            if line.startswith("$ "):
                words = shlex.split(line[2:], comments=True)
                assert words[:2] == ["tamis", "bench"], line
                assert main(*words[1:]) == 0, line
                n_commands += 1
    assert n_commands >= 5
    assert names
