"""Which shard a subscription lives in: by its id, by its place, or by an attribute's value.

By its id every shard has a bit of everything. By place or value, neighbours live together, so most
events concern few shards (`routing`): the space of keys is cut in halves with as many subscriptions
each, as a k-d tree is, until there are enough parts.

    by "region"     key (x, y): the centre of the circle that an event must lie in
    by attribute    key (v, 0): the middle of the numbers that it must have
    first shards    those that have no key: one, or as many as it takes for shards of about one
                    size; every event meets them
    all others      the leaves of the tree

Where many have no key, or the very same one, no cut can part them: they are dealt out by their ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tamis.errors import LanguageError
from tamis.language import And, Between, Compare, In, Near, Node, Or, parse

Doubles = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]  # low x, low y, high x, high y
Tree = int | list[Any]  # a shard, or [axis, at, below, from there on]

# A cut between what has no key, and what has one.
_NO_KEY_AXIS = -1
# From this axis on a cut is by a hash of the id and of the axis, in thousandths; cuts below one
# another have different axes, or the second would cut nothing.
_HASH_AXIS = 2
_SAMPLE_ROWS = 100_000
KEYS = ("key_x", "key_y")
IS_GOOD = "is_good"


def with_keys(frame: DataFrame, by: str) -> DataFrame:
    """Adds key_x and key_y, null where there is no key, and whether the predicate can be read."""
    added = [T.StructField(name, T.DoubleType()) for name in KEYS]
    added.append(T.StructField(IS_GOOD, T.BooleanType()))
    schema = T.StructType([*frame.schema.fields, *added])
    return frame.mapInArrow(_KeyAdder(by), schema)


def grow_tree(keyed: DataFrame, n_shards: int) -> Tree:
    """Cuts the keys of a sample into shards of equal numbers, behind those without a key."""
    good = keyed.where(F.col(IS_GOOD))
    n_rows, n_keys = good.agg(F.count(F.lit(1)), F.count(KEYS[0])).collect()[0]
    n_first = round(n_shards * (n_rows - n_keys) / max(n_rows, 1))
    n_first = max(1, min(n_first, n_shards - (n_keys > 0)))
    nobody = np.empty((0, 2))
    if n_first == n_shards:
        return _grow(nobody, 0, n_shards)
    keys = good.select(*KEYS).where(F.col(KEYS[0]).isNotNull())
    if n_keys > _SAMPLE_ROWS:
        keys = keys.sample(fraction=_SAMPLE_ROWS / n_keys, seed=1)
    rows = keys.collect()
    points = np.array([[row[0], row[1]] for row in rows], dtype=np.float64).reshape(-1, 2)
    rest = _grow(points, n_first, n_shards - n_first)
    return [_NO_KEY_AXIS, 0, _grow(nobody, 0, n_first), rest]


def _grow(points: Doubles, first: int, n_leaves: int) -> Tree:
    if n_leaves == 1:
        return first
    n_below = n_leaves // 2
    share = n_below / n_leaves
    spread = np.ptp(points, axis=0) if len(points) else np.zeros(2)
    axis = int(np.argmax(spread))
    if spread[axis] > 0:
        at = float(np.quantile(points[:, axis], share))
        is_below = points[:, axis] < at
        if 0.25 * share <= is_below.mean() <= 1 - 0.25 * (1 - share):
            below = _grow(points[is_below], first, n_below)
            rest = _grow(points[~is_below], first + n_below, n_leaves - n_below)
            return [axis, at, below, rest]
    below = _grow(points, first, n_below)
    rest = _grow(points, first + n_below, n_leaves - n_below)
    return [_HASH_AXIS + 10_000 * first + n_leaves, round(1000 * share), below, rest]


def shard_by_tree(tree: Tree, x: Column, y: Column, id: Column) -> Column:
    """The leaf of a key, which is null where there is none."""

    def walk(node: Tree) -> Column:
        if isinstance(node, int):
            return F.lit(node)
        axis, at, below, rest = node
        if axis == _NO_KEY_AXIS:
            is_below = x.isNull() | y.isNull()
        elif axis >= _HASH_AXIS:
            is_below = F.pmod(F.xxhash64(id, F.lit(axis)), F.lit(1000)) < F.lit(at)
        else:
            is_below = (x, y)[axis] < F.lit(at)
        return F.when(is_below, walk(below)).otherwise(walk(rest))

    return walk(tree).cast("int")


@dataclass(frozen=True)
class _KeyAdder:
    """Runs in the tasks."""

    by: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = batch.column(batch.schema.get_field_index("predicate")).to_pylist()
            trees = [_parsed(text) for text in texts]
            keys = [None if tree is None else key_of(tree, self.by) for tree in trees]
            columns = [
                pa.array([None if key is None else key[axis] for key in keys], pa.float64())
                for axis in range(2)
            ]
            columns.append(pa.array([tree is not None for tree in trees]))
            yield pa.record_batch(
                [*batch.columns, *columns], names=[*batch.schema.names, *KEYS, IS_GOOD]
            )


def _parsed(text: str | None) -> Node | None:
    try:
        return None if text is None else parse(text)
    except LanguageError:  # it will be rejected
        return None


def key_of(tree: Node, by: str) -> tuple[float, float] | None:
    """The key of a predicate, if every event that satisfies it lies near it."""
    box = _box_of(tree, by)
    if box is None or not all(map(math.isfinite, box)):
        return None
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _box_of(node: Node, by: str) -> Box | None:
    """Where every event lies that satisfies the node; None: anywhere."""
    if isinstance(node, Near) and by == "region":
        return node.x, node.y, node.x, node.y  # circles are small against regions
    if isinstance(node, And):
        known = [box for part in node.parts if (box := _box_of(part, by)) is not None]
        return _common(known) if known else None
    if isinstance(node, Or):
        boxes = [_box_of(part, by) for part in node.parts]
        return None if None in boxes else _hull([box for box in boxes if box is not None])
    if by == "region" or getattr(node, "name", None) != by:
        return None
    if isinstance(node, Between):
        return _interval(node.low, node.high)
    if isinstance(node, In):
        return _hull([_interval(value, value) for value in node.values])
    if isinstance(node, Compare):
        low = node.value if node.op in ("=", ">", ">=") else -math.inf
        high = node.value if node.op in ("=", "<", "<=") else math.inf
        return _interval(low, high)
    return None


def _interval(low: Any, high: Any) -> Box:
    is_number = all(
        isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)
    )
    return (float(low), 0.0, float(high), 0.0) if is_number else (-math.inf, 0.0, math.inf, 0.0)


def _hull(boxes: Sequence[Box]) -> Box:
    low_x, low_y, high_x, high_y = zip(*boxes, strict=True)
    return min(low_x), min(low_y), max(high_x), max(high_y)


def _common(boxes: Sequence[Box]) -> Box:
    low_x, low_y, high_x, high_y = zip(*boxes, strict=True)
    return max(low_x), max(low_y), min(high_x), min(high_y)
