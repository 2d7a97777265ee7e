"""Workloads of our own: every kind of constraint in one set of subscriptions.

The papers' workloads have one kind each; a planner must be good at what lies between. Here the
share of each kind is a parameter, and so are areas, strings, and the widths of filters and events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ._arrow import NUMBERS, STRINGS, attribute_map, join, pick, string_array, texts
from ._comparisons import string_values
from ._random import Int64s, zipf_weights
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

SIDE = 100_000
"""Positions are whole numbers in a square of this side."""

# In the order of the shares; the text before the value, and the value as text.
KINDS = ("equal", "unequal", "less", "more", "between", "listed", "prefix", "suffix", "exists")
_EQUAL, _UNEQUAL, _LESS, _MORE, _BETWEEN, _LISTED, _PREFIX, _SUFFIX, _EXISTS = range(len(KINDS))
_BEFORE = (" = ", " != ", " < ", " > ", " BETWEEN ", " IN ", " LIKE ", " LIKE ", "")
_LISTED_STEPS = (0, 7, 19)  # an IN has these values beyond its first


class Constraints(NamedTuple):
    """Each array: [n_draws, n_filters]; name -1 means that the filter has fewer."""

    names: Int64s
    kinds: Int64s
    values: Int64s


@dataclass(frozen=True, kw_only=True)
class MixWorkload(SyntheticWorkload):
    """Filters `a3 BETWEEN 5 AND 9 AND s7 LIKE 'v1%' AND NEAR(…)`, each a subscription."""

    family: ClassVar[str] = "mix"
    position: ClassVar[tuple[str, str] | None] = ("x", "y")
    choices: ClassVar[tuple[str, ...]] = (
        "Kinds of constraints are drawn by their shares, which need not sum up to 1.",
        (
            "A name stands for a number (a17) or for a string (s17). LIKE on a number would match "
            "nothing: there it is a BETWEEN."
        ),
        "A prefix is all digits of a value but the last, a suffix is the last one.",
        "Every event has a position; areas are circles of one radius at uniform places.",
    )

    key: str = "mix-default"
    source: str = "ours"
    description: str = "100k filters of 2-4 constraints of every kind on 50 names"
    n_subscriptions: int = 100_000
    n_names: int = 50
    n_values: int = 1000
    min_constraints: int = 2
    max_constraints: int = 4
    min_attributes: int = 8
    max_attributes: int = 12
    zipf: float = 0.0
    string_share: float = 0.5
    equal: float = 1.0
    unequal: float = 1.0
    less: float = 1.0
    more: float = 1.0
    between: float = 1.0
    listed: float = 1.0
    prefix: float = 1.0
    suffix: float = 1.0
    exists: float = 1.0
    width: float = 0.1
    """Of a BETWEEN, as a share of the values."""
    area_share: float = 0.0
    """Of the filters that have an area."""
    radius: int = 500

    def _check(self) -> None:
        super()._check()
        check_integer("n_names", self.n_names, maximum=100_000)
        check_integer("n_values", self.n_values, minimum=100, maximum=10_000)
        if str(self.n_values).strip("0") != "1":
            raise WorkloadError(f"n_values must be 100, 1000 or 10000, not {self.n_values}")
        for low, high in (
            ("min_constraints", "max_constraints"),
            ("min_attributes", "max_attributes"),
        ):
            check_range(low, getattr(self, low), high, getattr(self, high), maximum=self.n_names)
        check_not_negative("zipf", self.zipf)
        for name in ("string_share", "area_share"):
            check_share(name, getattr(self, name))
        check_share("width", self.width, is_open=True)
        for name in KINDS:
            check_not_negative(name, getattr(self, name))
        if not sum(self._shares()) > 0:
            raise WorkloadError("one of the kinds of constraints must have a share above 0")
        check_integer("radius", self.radius, maximum=SIDE)

    def _shares(self) -> tuple[float, ...]:
        return tuple(float(getattr(self, name)) for name in KINDS)

    def _names(self) -> tuple[str, ...]:
        steps = [int(place * self.string_share + 1e-9) for place in range(self.n_names + 1)]
        return tuple(
            f"{'s' if steps[place + 1] > steps[place] else 'a'}{place}"
            for place in range(self.n_names)
        )

    @property
    def _n_wide(self) -> int:
        """How far a BETWEEN reaches beyond its first value."""
        return max(1, round(self.width * self.n_values)) - 1

    def _filters(self, rows: Int64s) -> Constraints:
        draws = self._stream("filters")
        names = draws.distinct(
            rows, self.max_constraints, self.n_names, zipf_weights(self.n_names, self.zipf)
        )
        spread = self.max_constraints - self.min_constraints + 1
        n_constraints = self.min_constraints + draws.integers(rows, 9000, spread)
        names[np.arange(self.max_constraints)[:, None] >= n_constraints] = -1
        is_string = np.array([name.startswith("s") for name in self._names()])
        kinds, values = np.empty_like(names), np.empty_like(names)
        for draw, name in enumerate(names):
            kind = draws.categories(rows, 1000 + draw, self._shares())
            is_like = (kind == _PREFIX) | (kind == _SUFFIX)
            kind = np.where(is_like & ~is_string[name], _BETWEEN, kind)
            # What `<`, `>` and BETWEEN leave room for.
            bound = np.select(
                [kind == _BETWEEN, (kind == _LESS) | (kind == _MORE)],
                [self.n_values - self._n_wide, self.n_values - 1],
                self.n_values,
            )
            kinds[draw] = kind
            values[draw] = draws.integers(rows, 2000 + draw, bound) + (kind == _LESS)
        return Constraints(names, kinds, values)

    def _has_area(self, rows: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return self._stream("areas").uniform(rows, 2) < self.area_share

    def _centres(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        draws = self._stream("areas")
        return draws.integers(rows, 0, SIDE), draws.integers(rows, 1, SIDE)

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        names = self._names()
        first, later, literals = _pieces(names, self.n_values, self._n_wide)
        is_string = np.array([name.startswith("s") for name in names])
        parts: list[pa.Array] = []
        for draw, (name, kind, value) in enumerate(zip(*self._filters(rows), strict=True)):
            present = name >= 0
            left = np.where(present, name * len(KINDS) + kind, 0)
            table = kind * 2 + is_string[name]
            parts.append(pick(later if draw else first, left, present))
            parts.append(pick(literals, table * self.n_values + value, present))
        if self.area_share > 0:
            x, y = self._centres(rows)
            near = join(" AND NEAR(", texts(x), ", ", texts(y), f", {self.radius})")
            parts.append(pick(near, np.arange(len(rows)), self._has_area(rows)))
        return join(*parts)

    def _event_schema(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("numbers", NUMBERS),
                pa.field("strings", STRINGS),
                pa.field("x", pa.float64()),
                pa.field("y", pa.float64()),
            ]
        )

    def _satisfying(self, filters: Constraints, free: Int64s) -> Int64s:
        kinds, values, n = filters.kinds, filters.values, self.n_values
        return np.select(
            [kinds == each for each in range(len(KINDS) - 1)],
            [
                values,
                np.where(free == values, (values + 1) % n, free),
                free * values // n,
                values + 1 + free * (n - 1 - values) // n,
                values + free % (self._n_wide + 1),
                values,
                values - values % 10 + free % 10,
                free - free % 10 + values % 10,
            ],
            free,
        )

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        draws = self._stream("events")
        planted = self._planted_in(rows)

        def demand(subscriptions: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
            filters = self._filters(subscriptions)
            free = np.stack(
                [draws.integers(events, 5000 + k, self.n_values) for k in range(len(filters.names))]
            )
            return filters.names, self._satisfying(filters, free)

        attributes = draw_attributes(
            draws,
            rows,
            planted,
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
        centre_x, centre_y = self._centres(np.maximum(planted, 0))
        x = np.where(planted >= 0, centre_x, draws.integers(rows, 9003, SIDE))
        y = np.where(planted >= 0, centre_y, draws.integers(rows, 9004, SIDE))
        columns = [
            attribute_map(table, None, *attributes, is_present & ~is_string),
            attribute_map(table, string_values(self.n_values), *attributes, is_present & is_string),
            pa.array(x.astype(np.float64)),
            pa.array(y.astype(np.float64)),
        ]
        return pa.record_batch(columns, schema=self._event_schema())


@lru_cache(maxsize=8)
def _pieces(
    names: tuple[str, ...], n_values: int, n_wide: int
) -> tuple[pa.StringArray, pa.StringArray, pa.StringArray]:
    """What stands before a value, for each name and kind; the values, by kind, type and value."""
    before = string_array(
        [
            f"{'EXISTS ' if kind == _EXISTS else ''}{name}{_BEFORE[kind]}"
            for name in names
            for kind in range(len(KINDS))
        ]
    )
    strings = string_values(n_values).to_pylist()
    plain = [[str(value) for value in range(n_values)], [f"'{text}'" for text in strings]]
    literals: list[str] = []
    for kind in range(len(KINDS)):
        for is_string, of in enumerate(plain):
            for value in range(n_values):
                if kind == _BETWEEN:
                    literals.append(f"{of[value]} AND {of[min(value + n_wide, n_values - 1)]}")
                elif kind == _LISTED:
                    listed = sorted((value + step) % n_values for step in _LISTED_STEPS)
                    literals.append(f"({', '.join(of[each] for each in listed)})")
                elif kind in (_PREFIX, _SUFFIX) and is_string:
                    text = strings[value]
                    literals.append(f"'{text[:-1]}%'" if kind == _PREFIX else f"'%{text[-1]}'")
                else:
                    literals.append("" if kind == _EXISTS else of[value])
    return before, join(" AND ", before), string_array(literals)


VARIANTS = (
    Variant("mix-default", MixWorkload.source, MixWorkload.description),
    Variant(
        "mix-areas",
        MixWorkload.source,
        "half of the filters have an area",
        {"area_share": 0.5},
    ),
    Variant(
        "mix-wide-events",
        MixWorkload.source,
        "events have 40 of 50 attributes",
        {"min_attributes": 40, "max_attributes": 40},
    ),
    Variant(
        "mix-ranges",
        MixWorkload.source,
        "ranges alone, on 10 attributes that all events have",
        {
            "n_names": 10,
            "min_attributes": 10,
            "max_attributes": 10,
            "string_share": 0.0,
            **dict.fromkeys(("equal", "unequal", "listed", "prefix", "suffix", "exists"), 0.0),
        },
    ),
    Variant(
        "mix-texts",
        MixWorkload.source,
        "equality, lists and LIKE on strings",
        {
            "string_share": 1.0,
            **dict.fromkeys(("unequal", "less", "more", "between", "exists"), 0.0),
        },
    ),
)
