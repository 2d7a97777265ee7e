"""The pages are true: their Python runs, their commands run, their links lead somewhere.

```python     all of a page run from top to bottom in one namespace, in an empty folder
```console    `$ tamis …` runs in that folder and must succeed, or end with the code of a following
              line `# exits with N`; lines of output must come out in that order, `…` is any text
"""

from __future__ import annotations

import linecache
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

_FENCE = re.compile(
    r"^(?P<fence>```+)(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)\s*$", re.M | re.S
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|<img [^>]*src=\"(?P<image>[^\"]+)\"")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.M)
_EXIT_CODE = re.compile(r"# exits with (\d+)")


@dataclass(frozen=True)
class Fence:
    language: str
    body: str
    line: int  # of the page, where the body begins


@dataclass
class Command:
    text: str
    line: int
    code: int = 0
    output: list[str] = field(default_factory=list)


def fences_of(page: Path) -> Iterator[Fence]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("body")) + 1
        yield Fence(found["language"], found["body"], line)


def commands_of(fence: Fence) -> Iterator[Command]:
    command = None
    for number, line in enumerate(fence.body.splitlines(), fence.line):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line[2:], number)
        elif command is not None and (exits := _EXIT_CODE.fullmatch(line.strip())):
            command.code = int(exits[1])
        elif command is not None and line.strip():
            command.output.append(line)
    if command is not None:
        yield command


def run_command(command: Command, page: Path, folder: Path) -> None:
    words = shlex.split(command.text, comments=True)
    if not words or words[0] != "tamis":
        return
    # The folder of the virtual environment: following the link to the interpreter would leave it.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    where = f"{page.name}:{command.line}: $ {command.text}"
    shown = f"{done.stdout}{done.stderr}"
    assert done.returncode == command.code, f"{where} exited with {done.returncode}:\n{shown}"
    place = 0
    for line in command.output:
        pattern = ".*?".join(re.escape(part) for part in line.rstrip().split("…"))
        found = re.compile(pattern).search(shown, place)
        assert found, f"{where}: the page shows\n{line}\nand that is not in (the rest of)\n{shown}"
        place = found.end()


def run_python(fence: Fence, page: Path, namespace: dict[str, object]) -> None:
    # Line numbers and source lines of a traceback are those of the page.
    source = "\n" * (fence.line - 1) + fence.body
    linecache.cache[str(page)] = (len(source), None, source.splitlines(keepends=True), str(page))
    exec(compile(source, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_what_a_page_shows_is_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    for fence in fences_of(page):
        if fence.language == "python":
            run_python(fence, page, namespace)
        elif fence.language == "console":
            for command in commands_of(fence):
                run_command(command, page, tmp_path)


def anchor_of(heading: str) -> str:
    """As GitHub and GitLab make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor_of(heading) for heading in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=PAGE_NAMES)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for found in _LINK.finditer(text):
        link = found["target"] or found["image"]
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    text = index.read_text(encoding="utf-8")
    linked = {
        (index.parent / found["target"].partition("#")[0]).resolve()
        for found in _LINK.finditer(text)
        if found["target"]
    }
    docs = {page.resolve() for page in PAGES if "docs" in page.relative_to(ROOT).parts}
    assert docs - linked - {index.resolve()} == set()


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """Not on a terminal, and where the locale knows ASCII alone."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONIOENCODING", "PYTHONUTF8")
    }
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={**environment, "LANG": "C", "LC_ALL": "C"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert "\033" not in done.stdout
