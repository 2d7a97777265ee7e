"""Events with few attributes out of many names, some of them made to match.

Matrices are [n_draws, n_rows]; name -1 means that the event has fewer attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ._random import KEYS_AT_ONCE, Floats, Int64s, Stream

# From (subscriptions, events): the names an event must have, -1 for none, and their values.
Demand = Callable[[Int64s, Int64s], tuple[Int64s, Int64s]]


class Attributes(NamedTuple):
    """Each array: [n_draws, n_events]."""

    names: Int64s
    values: Int64s


def draw_attributes(
    draws: Stream,
    rows: Int64s,
    planted: Int64s,
    demand: Demand,
    *,
    counts: tuple[int, int],
    n_names: int,
    values: tuple[int, int],
    weights: Floats | None = None,
) -> Attributes:
    """Between counts[0] and counts[1] different names an event, values in [values[0], values[1]].

    planted: for each row the subscription that it must match, or -1. Where that one
    demands more attributes than the event would have, the event has as many as demanded.
    """
    least, most = counts
    low, high = values
    n_attributes = least + draws.integers(rows, 9000, most - least + 1)
    names = draws.distinct(rows, most, n_names, weights)
    names[np.arange(most)[:, None] >= n_attributes] = -1
    drawn = np.stack(
        [low + draws.integers(rows, 1000 + draw, high - low + 1) for draw in range(most)]
    )
    where = np.flatnonzero(planted >= 0)
    if len(where) == 0:
        return Attributes(names, drawn)

    step = max(1, KEYS_AT_ONCE // n_names)
    for first in range(0, len(where), step):
        part = where[first : first + step]
        must_names, must_values = demand(planted[part], rows[part])
        width = max(most, len(must_names))
        if width > len(names):
            missing = ((0, width - len(names)), (0, 0))
            names = np.pad(names, missing, constant_values=-1)
            drawn = np.pad(drawn, missing)
        free = np.stack(
            [
                low + draws.integers(rows[part], 10_000 + name, high - low + 1)
                for name in range(n_names)
            ],
            axis=1,
        )
        keys = draws.keys(rows[part], n_names, weights)
        names[:, part], drawn[:, part] = plant(
            keys, free, must_names, must_values, n_attributes[part], len(names)
        )
    return Attributes(names, drawn)


def plant(
    keys: Floats, free: Int64s, names: Int64s, values: Int64s, counts: Int64s, width: int
) -> Attributes:
    """Attribute sets that contain given ones: names and values, [width, n_events].

    names, values: [n_draws, n_events], what each event must have, -1 for none;
    keys, free: [n_events, n_names], a random order and values for the rest;
    counts: [n_events], how many attributes an event has (more if it must have more).
    """
    n_events, n_names = keys.shape
    # Column n_names swallows what the -1 of absent names writes.
    forced = np.concatenate([keys, np.zeros((n_events, 1))], axis=1)
    chosen_values = np.concatenate([free, np.zeros((n_events, 1), dtype=np.int64)], axis=1)
    events = np.arange(n_events)
    for name, value in zip(names, values, strict=True):
        forced[events, name] = -1.0
        chosen_values[events, name] = value
    order = np.argsort(forced[:, :n_names], axis=1, kind="stable")[:, :width]
    counts = np.maximum(counts, (names >= 0).sum(axis=0))
    kept = np.arange(order.shape[1]) < counts[:, None]
    # Back to a random order, lest the planted attributes always come first.
    shuffle = np.argsort(np.where(kept, np.take_along_axis(keys, order, axis=1), np.inf), axis=1)
    order = np.take_along_axis(order, shuffle, axis=1)
    planted_names = np.where(kept, order, -1)
    planted_values = np.take_along_axis(chosen_values, order, axis=1)
    return Attributes(planted_names.T, planted_values.T)
