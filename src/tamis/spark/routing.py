"""Which events a shard can match at all, by what its summary says.

Only what every filter of the shard needs can leave an event out: an attribute that all need, with
a number in the range that they accept, or a position near the circles that all have. With
subscriptions spread by their ids a shard rarely has such a thing; spread by region or by an
attribute it does.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.spark.manifest import Attribute, Summary

Int64s = npt.NDArray[np.int64]

_EARTH_RADIUS_M = 6_371_008.8  # as the core has it


def may_match(
    summary: Summary, events: pa.RecordBatch, position: tuple[str, str] | None, space: str
) -> Int64s | None:
    """The rows of the events that the shard may match; None: nothing can be left out."""
    if summary.n_filters == 0:
        return np.empty(0, np.int64)
    masks = []
    if summary.n_with_area == summary.n_filters:
        if position is None:
            return np.empty(0, np.int64)
        x, y = (_numbers(events.column(name)) for name in position)
        masks.append((_near_on_earth if space == "earth" else _near)(summary, x, y))
    # What is in maps is not looked at: that would cost as much as matching.
    if not any(pa.types.is_map(column.type) for column in events.columns):
        for name, attribute in summary.attributes.items():
            if attribute.n_needing < summary.n_filters:
                continue
            if name not in events.schema.names:
                return np.empty(0, np.int64)
            masks.append(_accepts(attribute, events.column(name)))
    if not masks:
        return None
    rows = np.flatnonzero(np.logical_and.reduce(masks))
    return None if len(rows) == events.num_rows else rows


def _accepts(attribute: Attribute, column: pa.Array) -> npt.NDArray[np.bool_]:
    is_there = np.asarray(column.is_valid())
    if not pa.types.is_integer(column.type) and not pa.types.is_floating(column.type):
        return is_there
    if math.isinf(attribute.low) and math.isinf(attribute.high) and attribute.low < 0:
        return is_there
    numbers = _numbers(column)
    # NaN is accepted by few filters, but by some: those have no limits.
    return is_there & (numbers >= attribute.low) & (numbers <= attribute.high)


def _near(
    summary: Summary, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    low_x, low_y, high_x, high_y = summary.box
    # Squares of distances are rounded, so a point may count that lies beyond by the last bits.
    slack = 1e-9 * max(1.0, summary.max_radius, *(abs(each) for each in summary.box))
    return (
        (x >= low_x - slack) & (x <= high_x + slack) & (y >= low_y - slack) & (y <= high_y + slack)
    )


def _near_on_earth(
    summary: Summary, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """`box` is around the centres: how far circles reach depends on the latitude."""
    low_x, low_y, high_x, high_y = summary.box
    reach = summary.max_radius / _EARTH_RADIUS_M * (1 + 1e-9) + 1e-9
    reach_y = math.degrees(reach)
    is_near = (y >= low_y - reach_y) & (y <= high_y + reach_y)
    widest = math.radians(max(abs(low_y), abs(high_y)))
    if widest + reach >= math.pi / 2:  # a pole: every meridian
        return is_near
    reach_x = math.degrees(math.asin(math.sin(reach) / math.cos(widest))) + 1e-6
    if low_x - reach_x < -180 or high_x + reach_x > 180:  # across the date line, or from 0 to 360
        return is_near
    turned = np.where(x > 180, x - 360, x)
    return is_near & (turned >= low_x - reach_x) & (turned <= high_x + reach_x)


def _numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """As doubles, rounded as the limits are; what is absent is NaN."""
    doubles = pc.cast(column, pa.float64(), safe=False)
    return np.asarray(doubles.to_numpy(zero_copy_only=False), dtype=np.float64)
