"""Memory that a GPU reads without a detour.

>>> import tamis.gpu
>>> if not tamis.gpu.unavailable():
...     temperatures = tamis.gpu.pinned(1_000_000, "float64")  # a NumPy array

A large table whose columns are numbers in such memory goes to a GPU engine as it is: `match_many`
neither decodes nor copies it, and the GPU reads the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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


def pin(table: pa.Table) -> pa.Table:
    """A copy of the table with its numbers in pinned memory, ready for a GPU.

    That is columns of integers and floats, and maps from strings to these, whose names become a
    dictionary. Other columns stay as they are; `match_many` decodes a table that has such a column,
    if a subscription mentions it, on the host.
    """
    columns = [_pin_array(_in_one_piece(column)) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _pin_array(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_map(kind) and array.null_count == 0:
        keys, items = array.keys, array.items
        if not pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_encode()
        keys = pa.DictionaryArray.from_arrays(_pin_array(keys.indices), keys.dictionary)
        return pa.MapArray.from_arrays(_pin_array(array.offsets), keys, _pin_array(items))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        buffers = [None if each is None else _pin_buffer(each) for each in array.buffers()]
        return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset)
    return array


def _pin_buffer(buffer: pa.Buffer) -> pa.Buffer:
    copy = pinned(buffer.size, np.uint8)
    copy[:] = np.frombuffer(buffer, np.uint8)
    return pa.py_buffer(copy)
