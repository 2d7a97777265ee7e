"""What a measurement ran on: machine, versions, commit, command."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tamis
from tamis import _core

# Facts that two runs must share before their times may be compared.
COMPARED_FACTS = ("cpu", "cores", "simd", "memory_bytes", "cuda_unavailable")

LONGEST_COMMAND = 2000


def machine() -> dict[str, Any]:
    """The facts about this machine that times depend on; what cannot be read is None."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "simd": _core.simd_level(),
        "simd_available": list(_core.simd_levels()),
        "memory_bytes": _memory_bytes(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "kernel": platform.release(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cuda_unavailable": _core.cuda_unavailable(),
        "gpu": _gpu(),
    }


def load() -> list[float] | None:
    """The load averages of 1, 5 and 15 minutes: who else was busy."""
    try:
        return [round(each, 2) for each in os.getloadavg()]
    except OSError:
        return None


def process_bytes() -> dict[str, int]:
    """Memory of this process: its own, without mapped files; all of it; and at its highest."""
    names = {"RssAnon": "own", "VmRSS": "resident", "VmHWM": "peak"}
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            found[names[name]] = int(rest.split()[0]) * 1024
    return found


def versions() -> dict[str, str | None]:
    """The versions of what was measured and what it stands on."""
    return {
        "tamis": tamis.__version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "pyarrow": version("pyarrow"),
        "compiler": _compiler(),
    }


def git() -> dict[str, Any] | None:
    """Commit and dirty flag of the checkout that Tamis is imported from, or None without one."""
    source = Path(tamis.__file__).resolve()
    if commit := os.environ.get("TAMIS_COMMIT"):  # where the sources came without their history
        return {"commit": commit, "dirty": None}
    # A package inside an ignored folder (a virtual environment) does not belong to the checkout.
    if _git(source.parent, "rev-parse", "--is-inside-work-tree") != "true":
        return None
    if _git(source.parent, "check-ignore", str(source)) is not None:
        return None
    changes = _git(source.parent, "status", "--porcelain")
    return {
        "commit": _git(source.parent, "rev-parse", "--verify", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def command() -> str:
    """The command line of this process."""
    if Path(sys.argv[0]).name == "tamis" or sys.orig_argv[1:3] == ["-m", "tamis.cli"]:
        line = shlex.join(["tamis", *sys.argv[1:]])
    else:
        line = shlex.join(sys.orig_argv)
    return line if len(line) <= LONGEST_COMMAND else line[: LONGEST_COMMAND - 1] + "…"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.M)
    return found[1] if found else platform.processor() or None


def _gpu() -> str | None:
    """Name and driver of the GPU that engines would use, as nvidia-smi has them."""
    if _core.cuda_unavailable():
        return None
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "a GPU that nvidia-smi does not name"
    name, _, driver = done.stdout.strip().partition(", ")
    return f"{name}, driver {driver}" if driver else "a GPU that nvidia-smi does not name"


def _memory_bytes() -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo") or "", re.M)
    return int(found[1]) * 1024 if found else None


def _caches() -> dict[str, str]:
    """Like {"L1d": "48K", "L2": "2048K"}."""
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(str(index / name)) for name in ("level", "type", "size"))
        if level and size:
            letter = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
            caches[f"L{level}{letter}"] = size
    return caches


def _compiler() -> str | None:
    """The compiler's name as it left it in the extension module; None if it was stripped."""
    try:
        binary = Path(_core.__file__).read_bytes()
    except OSError:
        return None
    found = re.search(rb"(GCC: \([^\0]{1,100}|[\w ]*clang version [^\0]{1,100})\0", binary)
    return found[1].decode("ascii", "replace") if found else None
