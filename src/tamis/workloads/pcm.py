"""The workload of 000 (PCM): filters of a few comparisons over many names.

Source: 000 Table 1, Fig. 6-9 and appendix B (Fig. 11-13, Table 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ._arrow import NUMBERS, STRINGS, attribute_map, string_array
from ._comparisons import (
    Comparisons,
    conjunctions,
    draw_comparisons,
    satisfying,
    string_values,
)
from ._random import Int64s, permuted, zipf_weights
from ._sparse import draw_attributes
from .workload import (
    SyntheticWorkload,
    Variant,
    WorkloadError,
    check_integer,
    check_not_negative,
    check_range,
    check_share,
)


@dataclass(frozen=True, kw_only=True)
class PcmWorkload(SyntheticWorkload):
    """Filters `a17 = 5 AND a3 != 99 AND …`, each its own subscription of one of few subscribers.

    Match with deliver="subscribers" for the paper's result.
    """

    family: ClassVar[str] = "pcm"
    size_parameter: ClassVar[str] = "n_filters"
    choices: ClassVar[tuple[str, ...]] = (
        "The names of a filter differ, and so do the names of an event.",
        (
            "Values are the integers 0..99; thresholds are drawn so that no constraint is "
            "impossible (`<` from 1 up, `>` to 98)."
        ),
        (
            "The sizes of the subscribers spread by 10 % around their mean, as 22,500-27,500 does, "
            "but their sum is exactly n_filters; filters of all subscribers are interleaved."
        ),
        "The points of a sweep are ours where only a figure's axis gives them.",
        "A sweep's number of attributes or constraints is exact, where the paper gives averages.",
        "The parameter of Zipf's law is not given: 1, for the names of constraints and events.",
        (
            "A name stands for a number (a17) or for a string (s17), never for both; the share of "
            "string names is the share of string constraints. Strings are v00..v99, with the same "
            "four operators."
        ),
        (
            "Where a filter has 4 constraints or more in a sweep, chance matches next to nothing: "
            "one event in ten is planted. A planted event has at least as many attributes as its "
            "filter has constraints."
        ),
    )

    key: str = "pcm-default"
    source: str = "000 Table 1"
    description: str = "250k filters of 3-5 comparisons on 100 names, 10 subscribers"
    n_filters: int = 250_000
    n_subscribers: int = 10
    subscriber_spread: float = 0.1
    min_constraints: int = 3
    max_constraints: int = 5
    min_attributes: int = 3
    max_attributes: int = 5
    n_names: int = 100
    n_values: int = 100
    zipf: float = 0.0
    string_share: float = 0.0

    @property
    def n_subscriptions(self) -> int:
        return self.n_filters

    def _check(self) -> None:
        super()._check()
        check_integer("n_subscribers", self.n_subscribers)
        check_share("subscriber_spread", self.subscriber_spread)
        check_integer("n_names", self.n_names, maximum=1_000_000)
        check_integer("n_values", self.n_values, minimum=2, maximum=1_000_000)
        check_range(
            "min_constraints",
            self.min_constraints,
            "max_constraints",
            self.max_constraints,
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
        check_share("string_share", self.string_share)
        if self.n_subscribers > self.n_filters:
            raise WorkloadError(
                f"n_subscribers must be at most n_filters ({self.n_filters}), "
                f"not {self.n_subscribers}"
            )

    def _names(self) -> tuple[str, ...]:
        # String names are spread evenly over the ranks, so that their share holds under Zipf too.
        steps = [int(place * self.string_share + 1e-9) for place in range(self.n_names + 1)]
        return tuple(
            f"{'s' if steps[place + 1] > steps[place] else 'a'}{place}"
            for place in range(self.n_names)
        )

    def _filters(self, rows: Int64s) -> Comparisons:
        draws = self._stream("filters")
        names = draws.distinct(
            rows, self.max_constraints, self.n_names, zipf_weights(self.n_names, self.zipf)
        )
        spread = self.max_constraints - self.min_constraints + 1
        n_constraints = self.min_constraints + draws.integers(rows, 9000, spread)
        names[np.arange(self.max_constraints)[:, None] >= n_constraints] = -1
        return draw_comparisons(draws, rows, names, (0.25,) * 4, self.n_values)

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        return conjunctions(self._filters(rows), self._names(), self.n_values)

    def _subscribers(self, rows: Int64s) -> Int64s:
        # Ranges of a permutation: sizes are exact and any row's subscriber is known at once.
        subscribers = np.arange(self.n_subscribers, dtype=np.int64)
        spread = self._stream("subscribers").uniform(subscribers, 0) * 2 - 1
        spread -= spread.mean()
        spread *= self.subscriber_spread / max(1.0, np.abs(spread).max())
        ends = np.rint(np.cumsum(1 + spread) * self.n_filters / self.n_subscribers)
        places = permuted(rows, self.n_filters, self.seed)
        return np.minimum(np.searchsorted(ends, places, side="right"), self.n_subscribers - 1)

    def _event_schema(self) -> pa.Schema:
        columns = [pa.field("numbers", NUMBERS)]
        if self.string_share > 0:
            columns.append(pa.field("strings", STRINGS))
        return pa.schema(columns)

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        draws = self._stream("events")

        def demand(subscriptions: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
            filters = self._filters(subscriptions)
            free = np.stack(
                [draws.integers(events, 5000 + k, self.n_values) for k in range(len(filters.names))]
            )
            return filters.names, satisfying(filters, free, self.n_values)

        attributes = draw_attributes(
            draws,
            rows,
            self._planted_in(rows),
            demand,
            counts=(self.min_attributes, self.max_attributes),
            n_names=self.n_names,
            values=(0, self.n_values - 1),
            weights=zipf_weights(self.n_names, self.zipf),
        )
        names = self._names()
        is_string = np.array([name.startswith("s") for name in names])[attributes.names]
        is_present = attributes.names >= 0
        table = string_array(names)
        columns = [attribute_map(table, None, *attributes, is_present & ~is_string)]
        if self.string_share > 0:
            strings = string_values(self.n_values)
            columns.append(attribute_map(table, strings, *attributes, is_present & is_string))
        return pa.record_batch(columns, schema=self._event_schema())


def _variants() -> tuple[Variant, ...]:
    found = [Variant("pcm-default", PcmWorkload.source, PcmWorkload.description)]

    def add(name: str, source: str, description: str, **parameters: float) -> None:
        found.append(Variant(f"pcm-{name}", f"000 {source}", description, parameters))

    add("zipf", "Table 3", "names by Zipf's law", zipf=1.0)
    for n in range(1, 10):
        add(
            f"attributes-{n}",
            "Fig. 6",
            f"{n} attributes an event",
            min_attributes=n,
            max_attributes=n,
        )
    for n in (20, 50):
        found.append(
            Variant(
                f"pcm-attributes-{n}",
                "ours, beyond 000 Fig. 6",
                f"{n} attributes an event",
                {"min_attributes": n, "max_attributes": n},
            )
        )
    for n in range(1, 10):
        exact = {"min_constraints": n, "max_constraints": n, "planted": 0.1 if n >= 4 else 0.0}
        add(
            f"constraints-{n}",
            "Fig. 11a",
            f"{n} constraints a filter, 25k filters",
            n_filters=25_000,
            **exact,
        )
        for total, text, figure in (
            (200_000, "200k", "Fig. 11b"),
            (1_000_000, "1m", "Fig. 7, 11c"),
            (5_000_000, "5m", "Fig. 11d"),
        ):
            add(
                f"constraints-{n}-total-{text}",
                figure,
                f"{n} constraints a filter, {text.upper()} constraints in all",
                n_filters=total // n,
                **exact,
            )
    found.append(
        Variant(
            "pcm-constraints-1-to-2",
            "ours, after 000 Fig. 7",
            "1-2 constraints a filter, 250k filters",
            {"min_constraints": 1, "max_constraints": 2},
        )
    )
    for n in (10, 25, 50, 100, 250, 500, 1000):
        add(f"names-{n}", "Fig. 12", f"{n} names", n_names=n)
    for n, text in (
        (10, "10"),
        (100, "100"),
        (1000, "1k"),
        (10_000, "10k"),
        (50_000, "50k"),
        (100_000, "100k"),
        (250_000, "250k"),
    ):
        add(
            f"filters-per-subscriber-{text}",
            "Fig. 8",
            f"{text} filters for each of 10 subscribers",
            n_filters=10 * n,
        )
    for n in range(10, 101, 10):
        add(
            f"subscribers-{n}",
            "Fig. 9",
            f"{n} subscribers with 25k filters each",
            n_subscribers=n,
            n_filters=25_000 * n,
        )
    for percent in (0, 25, 50, 75, 100):
        add(
            f"strings-{percent}",
            "Fig. 13",
            f"{percent} % of the constraints on strings",
            string_share=percent / 100,
        )
    add("2.5m", "Fig. 8", "2.5M filters", n_filters=2_500_000)
    return tuple(found)


VARIANTS = _variants()
