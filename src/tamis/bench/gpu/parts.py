"""The parts of the suite, and who measures each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tamis import _core
from tamis.errors import ArgumentError, UnavailableError

Figure = dict[str, Any]

# Of tamis_gpu_bench.
NATIVE = (
    "bounds",
    "ccm",
    "tuple-key-cuda",
    "tuple-key-cuda/10m",
    "block-bitmap-cuda",
    "spatial-grid-cuda",
    "spatial-grid-cuda/zipf",
    "spatial-grid-cuda/radii",
    "clcb-cuda",
    "clcb-cuda/always",
    "hem-cuda",
)
# Through the Matcher; the number is of filters.
CROSSOVER_FILTERS = (1_000, 10_000, 100_000, 1_000_000)
MATCHING = ("end-to-end", *(f"crossover/{n}" for n in CROSSOVER_FILTERS))
KERNELS = tuple(f"kernels/{name}" for name in ("tuple-key", "block-bitmap", "spatial-grid"))
# What has bars first: a device may be lent for minutes.
PARTS = (*NATIVE[:8], *MATCHING, *KERNELS, *NATIVE[8:])


def require_gpu() -> None:
    """An `UnavailableError` that says why there is nothing to measure on."""
    reason = _core.cuda_unavailable()
    if reason:
        raise UnavailableError(
            f"the suite gpu needs an NVIDIA GPU: {reason}; figures that tamis_gpu_bench wrote "
            "elsewhere can be read with --figures FILE"
        )


def check_part(name: str) -> str:
    if name not in PARTS:
        raise ArgumentError(f"part must be one of {', '.join(PARTS)}, not {name!r}")
    return name


def measure(part: str, share: float, on_phase: Callable[[str], None]) -> Iterator[Figure]:
    """The figures of a part, as they come; `share` is of the workloads' sizes."""
    from tamis.bench.gpu import kernels, matching, native

    if part in NATIVE:
        return native.measure(part, share, on_phase)
    if part in KERNELS:
        return kernels.measure(f"{part.removeprefix('kernels/')}-cuda", share, on_phase)
    if part == "end-to-end":
        return matching.end_to_end(share, on_phase)
    return matching.crossover(int(part.removeprefix("crossover/")), share, on_phase)
