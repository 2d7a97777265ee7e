"""Predicates from weighted templates, a batch at a time.

A template turns rows into predicates with whole-column operations. Rows are dealt to
templates at random, each template writes its share, and one gather restores the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa

from ._random import Int64s, Stream
from .workload import MissingDataError

Template = Callable[[Stream, Int64s], pa.StringArray]


def write_alerts(
    seed: int, family: str, rows: Int64s, templates: Sequence[tuple[float, Template]]
) -> pa.StringArray:
    """A predicate for each row, by a template chosen in proportion to its weight."""
    weights = [weight for weight, _ in templates]
    dealt = Stream(seed, f"{family}/templates").categories(rows, 0, weights)
    written, order = [], []
    for place, (_, template) in enumerate(templates):
        where = np.flatnonzero(dealt == place)
        if len(where):
            name = getattr(template, "__name__", str(place))
            written.append(template(Stream(seed, f"{family}/{name}"), rows[where]))
            order.append(where)
    return pa.concat_arrays(written).take(pa.array(np.argsort(np.concatenate(order))))


def data_folder(package: str) -> Path:
    """Where an installed package lies; the package is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDataError(
            f"the data of this workload is in the package {package}, which is not installed; "
            f'pip install "tamis[bench]"'
        )
    return Path(next(iter(spec.submodule_search_locations)))
