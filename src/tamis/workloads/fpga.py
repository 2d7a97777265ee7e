"""The workload of 004 (FPGA): many subscriptions of equalities out of few distinct ones.

Source: 004 Table I.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ._arrow import NUMBERS, attribute_map, join, pick, string_array
from ._random import Int64s, Stream, zipf_weights
from ._sparse import draw_attributes
from .workload import (
    SyntheticWorkload,
    Variant,
    WorkloadError,
    check_integer,
    check_not_negative,
    check_range,
)


class Equalities(NamedTuple):
    """Constraints names[k] = values[k]; name -1: none.  Each array: [n_draws, n_filters]"""

    names: Int64s
    values: Int64s


class Catalogue(NamedTuple):
    """The distinct predicates, ordered by attribute.

    Those of attribute a are values[begins[a]:begins[a + 1]].
    """

    begins: Int64s
    values: Int64s


@dataclass(frozen=True, kw_only=True)
class FpgaWorkload(SyntheticWorkload):
    """Subscriptions `a7 = 3 AND a91 = 15 AND …` drawn from a catalogue of distinct predicates."""

    family: ClassVar[str] = "fpga"
    choices: ClassVar[tuple[str, ...]] = (
        (
            "The paper gives averages: every subscription has exactly 10 predicates and every event "
            "exactly 50 attributes; min_ and max_ parameters spread them."
        ),
        (
            "The 1,500 distinct predicates are a seeded choice out of the 1,600 pairs of attribute "
            "and value; every attribute has at least one."
        ),
        (
            "The attributes of a subscription differ; its predicates stand in the order drawn, which "
            "matters to an index by first predicate."
        ),
        (
            "Skewed: attributes by Zipf's law with parameter 1, in subscriptions and in events, and "
            "the predicates of one attribute too; event values stay uniform."
        ),
        "Ten equalities never hold by chance: one event in ten is planted.",
        "The number of events is not given: 1,000.",
        "The paper has Table I only; the other sizes and the skew are ours.",
    )

    key: str = "fpga-default"
    source: str = "004 Table I"
    description: str = "6M subscriptions of 10 equalities out of 1,500, events of 50 attributes"
    planted: float = 0.1
    n_subscriptions: int = 6_000_000
    min_predicates: int = 10
    max_predicates: int = 10
    n_distinct_predicates: int = 1500
    n_names: int = 100
    n_values: int = 16
    min_attributes: int = 50
    max_attributes: int = 50
    zipf: float = 0.0

    def _check(self) -> None:
        super()._check()
        check_integer("n_names", self.n_names, maximum=100_000)
        check_integer("n_values", self.n_values, maximum=100_000)
        check_integer(
            "n_distinct_predicates",
            self.n_distinct_predicates,
            minimum=self.n_names,
            maximum=self.n_names * self.n_values,
        )
        check_range(
            "min_predicates",
            self.min_predicates,
            "max_predicates",
            self.max_predicates,
            maximum=self.n_names,
        )
        check_range(
            "min_attributes",
            self.min_attributes,
            "max_attributes",
            self.max_attributes,
            maximum=self.n_names,
        )
        check_not_negative("zipf", self.zipf)
        if self.planted > 0 and self.max_attributes < self.max_predicates:
            raise WorkloadError(
                f"max_attributes must be at least max_predicates ({self.max_predicates}) where "
                f"events are planted, not {self.max_attributes}"
            )

    def _catalogue(self) -> Catalogue:
        return _catalogue(self.seed, self.n_names, self.n_values, self.n_distinct_predicates)

    def _places(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Attribute (-1: none) and place in the catalogue of each draw."""
        draws = self._stream("filters")
        begins = self._catalogue().begins
        names = draws.distinct(
            rows, self.max_predicates, self.n_names, zipf_weights(self.n_names, self.zipf)
        )
        sizes = np.diff(begins)
        if self.zipf == 0:
            inside = [draws.integers(rows, 1000 + k, sizes[name]) for k, name in enumerate(names)]
        else:
            # Ranks by the law over the largest size, folded into the attribute's own.
            weights = zipf_weights(int(sizes.max()), self.zipf)
            assert weights is not None
            inside = [
                draws.categories(rows, 1000 + k, weights) % sizes[name]
                for k, name in enumerate(names)
            ]
        places = begins[names] + np.stack(inside)
        spread = self.max_predicates - self.min_predicates + 1
        n_predicates = self.min_predicates + draws.integers(rows, 9000, spread)
        names[np.arange(self.max_predicates)[:, None] >= n_predicates] = -1
        return names, places

    def _filters(self, rows: Int64s) -> Equalities:
        names, places = self._places(rows)
        return Equalities(names, self._catalogue().values[places])

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        begins, values = self._catalogue()
        owners = np.repeat(np.arange(self.n_names), np.diff(begins))
        first = string_array([f"a{a} = {v}" for a, v in zip(owners, values, strict=True)])
        later = join(" AND ", first)
        names, places = self._places(rows)
        return join(
            *(
                pick(later if k else first, place, name >= 0)
                for k, (name, place) in enumerate(zip(names, places, strict=True))
            )
        )

    def _event_schema(self) -> pa.Schema:
        return pa.schema([pa.field("numbers", NUMBERS)])

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        def demand(subscriptions: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
            return self._filters(subscriptions)

        attributes = draw_attributes(
            self._stream("events"),
            rows,
            self._planted_in(rows),
            demand,
            counts=(self.min_attributes, self.max_attributes),
            n_names=self.n_names,
            values=(0, self.n_values - 1),
            weights=zipf_weights(self.n_names, self.zipf),
        )
        names = string_array([f"a{place}" for place in range(self.n_names)])
        column = attribute_map(names, None, *attributes, attributes.names >= 0)
        return pa.record_batch([column], schema=self._event_schema())


@lru_cache(maxsize=8)
def _catalogue(seed: int, n_names: int, n_values: int, n_distinct: int) -> Catalogue:
    pairs = np.arange(n_names * n_values, dtype=np.int64)
    draws = Stream(seed, "fpga/catalogue")
    keys = draws.uniform(pairs, 0)
    # One pair of each attribute comes before all others, so that none is left without.
    kept = draws.integers(np.arange(n_names, dtype=np.int64), 1, n_values)
    keys[np.arange(n_names) * n_values + kept] = -1.0
    chosen = np.sort(np.argsort(keys, kind="stable")[:n_distinct])
    owners, values = np.divmod(chosen, n_values)
    # A random order within each attribute: under Zipf's law the first are the popular ones.
    order = np.lexsort((draws.uniform(chosen, 2), owners))
    begins = np.searchsorted(owners, np.arange(n_names + 1))
    return Catalogue(begins, values[order])


def _variants() -> tuple[Variant, ...]:
    found = [Variant("fpga-default", FpgaWorkload.source, FpgaWorkload.description)]

    def add(name: str, source: str, description: str, **parameters: float) -> None:
        found.append(Variant(f"fpga-{name}", source, description, parameters))

    for n in range(1, 7):
        add(
            f"{n}m",
            "ours, around 004 Table I",
            f"{n}M subscriptions",
            n_subscriptions=n * 1_000_000,
        )
    for n in range(5, 16):
        add(
            f"predicates-{n}",
            "ours, around 004 Table I",
            f"{n} predicates a subscription",
            min_predicates=n,
            max_predicates=n,
        )
    add(
        "predicates-5-to-15",
        "ours, around 004 Table I",
        "5-15 predicates a subscription, 10 on average",
        min_predicates=5,
        max_predicates=15,
    )
    add(
        "skewed", "ours, after 004 section III", "attributes and predicates by Zipf's law", zipf=1.0
    )
    return tuple(found)


VARIANTS = _variants()
