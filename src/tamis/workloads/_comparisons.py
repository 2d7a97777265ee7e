"""Filters of comparisons `name operator value`, as 000 and 003 use them.

    draw        filter 0   filter 1   …
    0           17 < 40     3 = 99
    1            5 != 7     8 > 12
    2            –         91 < 55           –: name -1, the filter has fewer constraints

Invariants: the names of a filter differ; every comparison holds for some value in
[0, n_values), hence thresholds of `<` start at 1 and those of `>` end at n_values - 2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ._arrow import join, pick, string_array
from ._random import Int64s, Stream

OPERATORS = ("=", "!=", "<", ">")


class Comparisons(NamedTuple):
    """Each array: [n_draws, n_filters]."""

    names: Int64s
    operators: Int64s
    values: Int64s


def draw_comparisons(
    draws: Stream, rows: Int64s, names: Int64s, shares: tuple[float, ...], n_values: int
) -> Comparisons:
    """Operators by their shares and values for the given names.  names: [n_draws, n_rows]"""
    operators = np.empty_like(names)
    values = np.empty_like(names)
    for draw in range(len(names)):
        chosen = draws.categories(rows, 1000 + draw, shares)
        bound = np.where(chosen < 2, n_values, n_values - 1)
        operators[draw] = chosen
        values[draw] = draws.integers(rows, 2000 + draw, bound) + (chosen == 2)
    return Comparisons(names, operators, values)


def satisfying(comparisons: Comparisons, free: Int64s, n_values: int) -> Int64s:
    """Values that satisfy the comparisons, picked by `free`, random in [0, n_values)."""
    operators, values = comparisons.operators, comparisons.values
    return np.select(
        [operators == 0, operators == 1, operators == 2],
        [
            values,
            np.where(free == values, (values + 1) % n_values, free),
            free * values // n_values,
        ],
        values + 1 + free * (n_values - 1 - values) // n_values,
    )


def conjunctions(comparisons: Comparisons, names: tuple[str, ...], n_values: int) -> pa.StringArray:
    """Each filter as text: constraints joined by AND."""
    first, later, numbers, strings = _pieces(names, n_values)
    is_string = np.array([name.startswith("s") for name in names])
    parts: list[pa.Array] = []
    for draw, (name, operator, value) in enumerate(zip(*comparisons, strict=True)):
        present = name >= 0
        left = np.where(present, name * len(OPERATORS) + operator, 0)
        parts.append(pick(later if draw else first, left, present))
        if not is_string.any():
            parts.append(pick(numbers, value, present))
        else:
            shifted = value + n_values * is_string[name]
            parts.append(pick(strings, shifted, present))
    return join(*parts)


@lru_cache(maxsize=8)
def _pieces(
    names: tuple[str, ...], n_values: int
) -> tuple[pa.StringArray, pa.StringArray, pa.StringArray, pa.StringArray]:
    first = string_array([f"{name} {operator} " for name in names for operator in OPERATORS])
    numbers = string_array([str(value) for value in range(n_values)])
    literals = [f"'{text}'" for text in string_values(n_values).to_pylist()]
    return first, join(" AND ", first), numbers, pa.concat_arrays([numbers, string_array(literals)])


@lru_cache(maxsize=8)
def string_values(n_values: int) -> pa.StringArray:
    """The strings that stand for 0..n_values-1, in the same order: v00, v01, …"""
    width = len(str(n_values - 1))
    return string_array([f"v{value:0{width}d}" for value in range(n_values)])
