"""Random numbers that are a pure function of (seed, purpose, row, column).

SplitMix64, addressed by counter instead of stepped: row r of column c is the
(r + 1)-th output of the generator that starts at a key hashed from seed, purpose
and c. Any row can be drawn without the rows before it, so batches may have any
size, a table's beginning does not depend on its length, and an event can be
planted from one subscription out of millions. A Philox generator for each block
of rows was rejected: to plant from a random row it has to draw the row's block.

Arrays of several draws a row are column-major, [n_draws, n_rows], so that every
step works on one contiguous column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

# Elements of a [n_rows, n_items] matrix of keys; 4M doubles stay at 32 MiB.
KEYS_AT_ONCE = 4_000_000


class Stream:
    """Draws for one purpose ("filters", "events", …) under one seed."""

    def __init__(self, seed: int, purpose: str) -> None:
        self._label = f"{seed}/{purpose}"

    def _key(self, column: int) -> int:
        digest = hashlib.blake2b(f"{self._label}/{column}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little")

    def bits(self, rows: Int64s, column: int) -> Bits:
        """64 random bits for each row."""
        z = rows.astype(np.uint64)
        z *= np.uint64(_GAMMA)
        z += np.uint64((self._key(column) + _GAMMA) & _MASK)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        return z

    def integers(self, rows: Int64s, column: int, bound: int | Int64s) -> Int64s:
        """Integers in [0, bound), bound < 2^31, by multiply and shift."""
        z = self.bits(rows, column)
        z >>= np.uint64(32)
        z *= np.asarray(bound).astype(np.uint64)
        z >>= np.uint64(32)
        return z.astype(np.int64)

    def uniform(self, rows: Int64s, column: int) -> Floats:
        """Doubles in [0, 1)."""
        z = self.bits(rows, column)
        z >>= np.uint64(11)
        return z.astype(np.float64) * 2.0**-53

    def categories(self, rows: Int64s, column: int, shares: Sequence[float] | Floats) -> Int64s:
        """Positions in `shares`, each as often as its share of the sum."""
        limits = np.cumsum(np.asarray(shares, dtype=np.float64))
        drawn = np.searchsorted(limits, self.uniform(rows, column) * limits[-1], side="right")
        # Rounding may put a product at the very end of the last share.
        last: Int64s = np.minimum(drawn, len(limits) - 1)
        return last

    def distinct(
        self, rows: Int64s, n_draws: int, n_items: int, weights: Floats | None = None
    ) -> Int64s:
        """For each row `n_draws` different items, in the order drawn.  [n_draws, n_rows]

        With weights, each draw takes one of the items left in proportion to its weight.
        """
        if weights is None:
            return self._distinct_uniform(rows, n_draws, n_items)
        drawn = np.empty((n_draws, len(rows)), dtype=np.int64)
        step = max(1, KEYS_AT_ONCE // n_items)
        for first in range(0, len(rows), step):
            keys = self.keys(rows[first : first + step], n_items, weights)
            if n_draws < n_items:
                nearest = np.argpartition(keys, n_draws - 1, axis=1)[:, :n_draws]
                order = np.argsort(np.take_along_axis(keys, nearest, axis=1), axis=1)
                chosen = np.take_along_axis(nearest, order, axis=1)
            else:
                chosen = np.argsort(keys, axis=1)
            drawn[:, first : first + step] = chosen.T
        return drawn

    def _distinct_uniform(self, rows: Int64s, n_draws: int, n_items: int) -> Int64s:
        # The draw-th pick is a place among the items not yet taken; stepping over the
        # earlier picks in ascending order turns the place into the item.
        drawn = np.empty((n_draws, len(rows)), dtype=np.int64)
        ascending: list[npt.NDArray[np.int32]] = []
        for draw in range(n_draws):
            pick = self.integers(rows, draw, n_items - draw).astype(np.int32)
            for earlier in ascending:
                pick += pick >= earlier
            drawn[draw] = pick
            for place, earlier in enumerate(ascending):
                ascending[place] = np.minimum(earlier, pick)
                pick = np.maximum(earlier, pick)
            ascending.append(pick)
        return drawn

    def keys(self, rows: Int64s, n_items: int, weights: Floats | None = None) -> Floats:
        """Exponential keys whose ascending order is a weighted random order.  [n_rows, n_items]"""
        keys = np.empty((len(rows), n_items))
        for item in range(n_items):
            keys[:, item] = -np.log1p(-self.uniform(rows, item))
        if weights is not None:
            keys /= weights
        return keys


def zipf_weights(n_items: int, alpha: float) -> Floats | None:
    """1 / rank^alpha; None for alpha 0, where all items weigh the same."""
    if alpha == 0:
        return None
    return np.asarray(np.arange(1, n_items + 1, dtype=np.float64) ** -alpha)


def permuted(rows: Int64s, n_items: int, seed: int) -> Int64s:
    """A seeded order of 0..n_items-1, read at `rows`; it starts again after n_items rows."""
    stream = Stream(seed, "order")
    multiplier = int(0.6180339887498949 * n_items) | 1
    while np.gcd(multiplier, n_items) != 1:
        multiplier += 1
    offset = int(stream.integers(np.zeros(1, dtype=np.int64), 0, n_items)[0])
    return (rows % n_items * multiplier + offset) % n_items
