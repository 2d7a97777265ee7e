"""Memory that a GPU reads without a detour.

>>> import tamis.gpu
>>> if not tamis.gpu.unavailable():
...     temperatures = tamis.gpu.pinned(1_000_000, "float64")  # a NumPy array
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tamis import _core
from tamis.errors import ArgumentError, ArgumentTypeError


def unavailable() -> str:
    """Why no GPU engine can run here; empty if one can."""
    return _core.cuda_unavailable()


def pinned(
    shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64
) -> np.ndarray[Any, np.dtype[Any]]:
    """A NumPy array in pinned memory of the host; its values are whatever was there before.

    The system cannot move or swap such memory, so a GPU reads and writes it directly. It is freed
    when the last array or buffer over it goes: views, slices, and Arrow arrays over
    `pyarrow.py_buffer(array)` copy nothing and keep it. It is slow to allocate: keep it and fill it
    again. Without a GPU this is an `UnavailableError`.
    """
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise ArgumentTypeError(f"dtype must be of plain values, not {kind}")
    sizes = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if not all(isinstance(size, int | np.integer) and size >= 0 for size in sizes):
        raise ArgumentError(f"shape must be made of numbers from 0 up, not {shape!r}")
    n_bytes = math.prod(map(int, sizes)) * kind.itemsize
    return _core.pinned(n_bytes).view(kind).reshape(sizes)
