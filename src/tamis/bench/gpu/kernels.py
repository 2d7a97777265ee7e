"""What each kernel uses of what the device could do, by Nsight Compute (ncu).

It runs a kernel several times, once for each group of counters, so its times are not those of the
other parts: shares are what counts here.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Callable, Iterator

from tamis.bench.gpu import native
from tamis.bench.gpu.parts import Figure
from tamis.errors import TamisError, UnavailableError

_TIME = "gpu__time_duration.sum"
METRICS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 cache",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed": "shared memory",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "multiprocessors",
}
# Of the first of them, some build the index; parts of 2^17 events and more come soon after.
LAUNCHES = 48
LIMIT_S = 240
_NANOSECONDS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}


def measure(engine: str, share: float, on_phase: Callable[[str], None]) -> Iterator[Figure]:
    """A figure for each kernel of the engine: of the launch that took longest."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise UnavailableError("kernels are measured by Nsight Compute, and there is no ncu here")
    command = [ncu, "--csv", "--page", "raw", "--clock-control", "none", "--print-units", "base"]
    command += ["--metrics", ",".join([_TIME, *METRICS]), "--launch-count", str(LAUNCHES)]
    command += ["--kill", "yes", str(native.find()), f"{share:g}", engine]
    on_phase("ncu")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TamisError(f"ncu took more than {LIMIT_S} s") from error
    figures = list(parse(done.stdout, engine))
    if not figures:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise TamisError(f"ncu gave no figures: {said[-1] if said else 'it said nothing'}")
    yield from figures


def parse(text: str, engine: str) -> Iterator[Figure]:
    """The table of `ncu --page raw --csv`: a row of names, one of units, then one a launch."""
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if '"Kernel Name"' in line), None)
    if first is None:
        return
    rows = list(csv.reader(io.StringIO("\n".join(lines[first:]))))
    names = rows[0]
    if _TIME not in names:
        return
    units = dict(zip(names, rows[1], strict=False))
    longest: dict[str, Figure] = {}
    for row in rows[2:]:
        if len(row) != len(names):
            continue
        found = dict(zip(names, row, strict=True))
        scale = _NANOSECONDS.get(units[_TIME], 1.0)
        seconds = _number(found[_TIME]) * scale / 1e9
        name = found["Kernel Name"].split("(")[0].split("<")[0].split("::")[-1].strip()
        if name in longest and longest[name]["seconds"] >= seconds:
            continue
        longest[name] = {
            "figure": "kernel",
            "engine": engine,
            "workload": "",
            "kernel": name,
            "seconds": seconds,
            "shares": {
                label: _number(found[metric]) / 100
                for metric, label in METRICS.items()
                if found.get(metric)
            },
        }
    yield from longest.values()


def _number(text: str) -> float:
    return float(text.replace(",", ""))
