"""Arrow arrays from the generators' matrices: text by lookup and join, attributes as maps.

Text is never formatted value by value: the distinct pieces (" AND a17 < ", "99") are
written once, taken by index, and joined by one kernel for a whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ._random import Bools, Int64s

NUMBERS = pa.map_(pa.string(), pa.int64())
STRINGS = pa.map_(pa.string(), pa.string())


def join(*parts: pa.Array | str) -> pa.StringArray:
    """The parts of each row one after another; a null part is left out."""
    return pc.binary_join_element_wise(*parts, "", null_handling="skip")


def texts(values: npt.NDArray[np.int64] | pa.Array) -> pa.StringArray:
    """Integers in decimal."""
    return pc.cast(pa.array(values), pa.string())


def pick(table: pa.Array, places: Int64s, keep: Bools | None = None) -> pa.Array:
    """table[places]; null where `keep` is false."""
    return table.take(pa.array(places, mask=None if keep is None else ~keep))


def in_list(table: pa.StringArray, places: Int64s, n_kept: Int64s) -> pa.StringArray:
    """Of each row the first `n_kept` of its places, as "(x, y, z)".  places: [n_draws, n_rows]"""
    continued = join(", ", table)
    parts = [
        pick(continued if draw else table, place, n_kept > draw)
        for draw, place in enumerate(places)
    ]
    return join("(", *parts, ")")


def quoted(values: pa.Array) -> pa.StringArray:
    """String literals of the language."""
    return join_keeping_nulls("'", pc.replace_substring(values, "'", "''"), "'")


def join_keeping_nulls(*parts: pa.Array | str) -> pa.StringArray:
    """As `join`, but null where any part is."""
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def attribute_map(
    names: pa.StringArray, items: pa.Array | None, places: Int64s, values: Int64s, keep: Bools
) -> pa.MapArray:
    """A map column of {names[place]: items[value]}, or of the values where items is None.

    places, values, keep: [n_draws, n_rows]; entries that are not kept do not exist.
    """
    offsets = np.zeros(keep.shape[1] + 1, dtype=np.int32)
    np.cumsum(keep.sum(axis=0), out=offsets[1:])
    by_row = keep.T
    taken = pa.array(values.T[by_row])
    return pa.MapArray.from_arrays(
        pa.array(offsets),
        names.take(pa.array(places.T[by_row])),
        taken if items is None else items.take(taken),
    )


def string_array(strings: Sequence[str]) -> pa.StringArray:
    return pa.array(strings, pa.string())
