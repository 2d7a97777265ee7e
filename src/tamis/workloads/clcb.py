"""The workload of 003 (CLCB): content and place together, with areas that move.

Source: 003 Table 1, Fig. 3-6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ._arrow import NUMBERS, attribute_map, join, pick, string_array, texts
from ._comparisons import Comparisons, conjunctions, draw_comparisons, satisfying
from ._random import Floats, Int64s, Stream, zipf_weights
from ._sparse import draw_attributes
from .workload import (
    BATCH_ROWS,
    SyntheticWorkload,
    Variant,
    WorkloadError,
    check_integer,
    check_not_negative,
    check_range,
    check_share,
    stream_of,
)

# The square in which everything lies. 0.01 % of it is a circle of 76 m, the paper's Milan.
SIDE_M = 13_470.0
# Coordinates are whole centimetres, so that a predicate's text is short and exact.
_CM = 100

MOVE_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
    ]
)

# Share of `=` among the operators; `!=` takes what gives the wanted selectivity, `<` and `>`
# share the rest.
_EQUAL_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class ClcbWorkload(SyntheticWorkload):
    """Subscriptions `NEAR(x, y, r) AND (a5 != 3 AND a7 < 40 AND … OR …)`, and events at places."""

    family: ClassVar[str] = "clcb"
    position: ClassVar[tuple[str, str] | None] = ("x", "y")
    choices: ClassVar[tuple[str, ...]] = (
        (
            "The paper's structures hold a circle for each filter, but it is the subscriber who "
            "stands somewhere: the ten filters of a subscription share one circle, and a move moves "
            "them all."
        ),
        (
            "The area is a square of 13,470 m, in which 0.01 % is a circle of 76 m, as in the "
            "paper's Milan. Circles at the border reach over it; coordinates are whole centimetres."
        ),
        (
            "With 100 names drawn uniformly, 3-5 constraints would hold for far less than the stated "
            "0.5 % of events. Names come in groups of 5; a filter and an event each draw from one "
            "group."
        ),
        (
            "Operators and values are not given: values 0..99, `=` for 10 % of the constraints, `!=` "
            "for as many as make a filter hold for 0.5 % of events, `<` and `>` for the rest."
        ),
        (
            "Zipf positions: 1,000 uniformly placed hot spots, popular by Zipf's law with parameter "
            "1, with a normal scatter of 5 % of the side around each, for subscriptions, events and "
            "moves."
        ),
        "The numbers of subscriptions in the sweeps are ours; the figures go from 0 to 1M.",
        (
            "Content that always matches: filters constrain 3-5 of five names, every event has all "
            "five, and every constraint holds for every value."
        ),
        (
            "A move takes a random subscription to a new place drawn as the first one was; the paper "
            "finds the distance without influence."
        ),
    )

    key: str = "clcb-default"
    source: str = "003 Table 1"
    description: str = "250k circles of 0.01 % of the area, each with 10 filters"
    n_subscriptions: int = 250_000
    n_filters_per_subscription: int = 10
    min_constraints: int = 3
    max_constraints: int = 5
    min_attributes: int = 3
    max_attributes: int = 5
    n_names: int = 100
    group_size: int = 5
    n_values: int = 100
    area_share: float = 0.0001
    selectivity: float = 0.005
    content: str = "selective"
    zipf: float = 0.0
    n_hot_spots: int = 1000
    scatter: float = 0.05
    n_moves: int = 1000

    def _check(self) -> None:
        super()._check()
        check_integer("n_filters_per_subscription", self.n_filters_per_subscription, maximum=1000)
        check_integer("n_names", self.n_names, maximum=1_000_000)
        check_integer("group_size", self.group_size, maximum=self.n_names)
        check_integer("n_values", self.n_values, minimum=2, maximum=1_000_000)
        for noun, low, high in (
            ("constraints", self.min_constraints, self.max_constraints),
            ("attributes", self.min_attributes, self.max_attributes),
        ):
            check_range(f"min_{noun}", low, f"max_{noun}", high, maximum=self.group_size)
        check_share("area_share", self.area_share, is_open=True)
        check_share("selectivity", self.selectivity, is_open=True)
        check_not_negative("zipf", self.zipf)
        check_integer("n_hot_spots", self.n_hot_spots, maximum=1_000_000)
        check_share("scatter", self.scatter)
        check_integer("n_moves", self.n_moves)
        if self.n_names % self.group_size:
            raise WorkloadError(
                f"group_size must divide n_names ({self.n_names}), not {self.group_size}"
            )
        if self.content not in ("selective", "always"):
            raise WorkloadError(f"content must be 'selective' or 'always', not {self.content!r}")
        if self.content == "selective":
            self._operator_shares()

    @property
    def radius_m(self) -> float:
        """The radius of every circle."""
        radius = math.sqrt(self.area_share * SIDE_M * SIDE_M / math.pi)
        return max(1, round(radius * _CM)) / _CM

    @property
    def _n_groups(self) -> int:
        return self.n_names // self.group_size

    def _names(self) -> tuple[str, ...]:
        return tuple(f"a{place}" for place in range(self.n_names))

    def _operator_shares(self) -> tuple[float, ...]:
        """Shares of = != < > with which a filter holds for `selectivity` of the events."""
        other = 1 - _EQUAL_SHARE
        hold_equal, hold_unequal = 1 / self.n_values, 1 - 1 / self.n_values
        lows, highs = 0.0, other  # limits of the share of !=

        def selectivity(unequal: float) -> float:
            # A threshold is uniform over the n_values - 1 possible ones: half hold on average.
            holds = _EQUAL_SHARE * hold_equal + unequal * hold_unequal + (other - unequal) * 0.5
            return self._chance(holds)

        least, most = selectivity(lows), selectivity(highs)
        if not least <= self.selectivity <= most:
            raise WorkloadError(
                f"selectivity must be a number from {least:.2g} to {most:.2g} with these names, "
                f"constraints and attributes, not {self.selectivity!r}"
            )
        for _ in range(60):
            middle = (lows + highs) / 2
            if selectivity(middle) < self.selectivity:
                lows = middle
            else:
                highs = middle
        ordered = (other - highs) / 2
        return (_EQUAL_SHARE, highs, ordered, ordered)

    def _chance(self, holds: float) -> float:
        """The chance that an event satisfies a filter whose constraints hold with `holds`."""
        total = 0.0
        constraints = range(self.min_constraints, self.max_constraints + 1)
        attributes = range(self.min_attributes, self.max_attributes + 1)
        for n_constraints in constraints:
            for n_attributes in attributes:
                total += (
                    holds**n_constraints
                    * math.comb(n_attributes, n_constraints)
                    / math.comb(self.group_size, n_constraints)
                )
        return total / (len(constraints) * len(attributes) * self._n_groups)

    def _filters(self, rows: Int64s) -> Comparisons:
        """Filter k of subscription s is row s * n_filters_per_subscription + k."""
        draws = self._stream("filters")
        names = draws.distinct(rows, self.max_constraints, self.group_size)
        spread = self.max_constraints - self.min_constraints + 1
        n_constraints = self.min_constraints + draws.integers(rows, 9000, spread)
        is_absent = np.arange(self.max_constraints)[:, None] >= n_constraints
        if self.content == "always":
            names[is_absent] = -1
            return self._tautologies(draws, rows, names)
        names += draws.integers(rows, 9001, self._n_groups) * self.group_size
        names[is_absent] = -1
        return draw_comparisons(draws, rows, names, self._operator_shares(), self.n_values)

    def _tautologies(self, draws: Stream, rows: Int64s, names: Int64s) -> Comparisons:
        # != and < against n_values: true of every value, as the events' stay below it.
        operators = np.stack(
            [1 + draws.integers(rows, 1000 + draw, 2) for draw in range(len(names))]
        )
        return Comparisons(names, operators, np.full_like(names, self.n_values))

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        # One more value than events have: what always-true constraints compare with.
        names, n_values = self._names(), self.n_values + 1
        parts: list[pa.Array | str] = []
        for place in range(self.n_filters_per_subscription):
            filters = self._filters(rows * self.n_filters_per_subscription + place)
            parts += [" OR " if place else "", conjunctions(filters, names, n_values)]
        x, y = self._places("subscriptions", rows)
        circle = join("NEAR(", _decimals(x), ", ", _decimals(y), f", {self.radius_m:.2f}) AND ")
        if self.n_filters_per_subscription == 1:
            return join(circle, *parts)
        return join(circle, "(", *parts, ")")

    def _places(self, purpose: str, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Coordinates in centimetres."""
        draws = self._stream(f"{purpose}/places")
        side = int(SIDE_M * _CM)
        weights = zipf_weights(self.n_hot_spots, self.zipf)
        if weights is None:
            return draws.integers(rows, 0, side + 1), draws.integers(rows, 1, side + 1)
        spots = draws.categories(rows, 2, weights)
        centres = self._stream("hot-spots")
        # Box-Muller; 1 - u keeps the logarithm finite.
        distance = np.sqrt(-2 * np.log(1 - draws.uniform(rows, 3))) * self.scatter * side
        angle = 2 * np.pi * draws.uniform(rows, 4)
        x = centres.integers(spots, 0, side + 1) + distance * np.cos(angle)
        y = centres.integers(spots, 1, side + 1) + distance * np.sin(angle)
        return _reflected(x, side), _reflected(y, side)

    def _event_schema(self) -> pa.Schema:
        return pa.schema(
            [pa.field("numbers", NUMBERS), pa.field("x", pa.float64()), pa.field("y", pa.float64())]
        )

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        draws = self._stream("events")
        planted = self._planted_in(rows)
        is_always = self.content == "always"
        group = draws.integers(rows, 9001, 1 if is_always else self._n_groups)

        def demanded(subscriptions: Int64s, events: Int64s) -> Comparisons:
            place = draws.integers(events, 9002, self.n_filters_per_subscription)
            return self._filters(subscriptions * self.n_filters_per_subscription + place)

        def demand(subscriptions: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
            filters = demanded(subscriptions, events)
            free = np.stack(
                [draws.integers(events, 5000 + k, self.n_values) for k in range(len(filters.names))]
            )
            values = free if is_always else satisfying(filters, free, self.n_values)
            names = np.where(filters.names >= 0, filters.names % self.group_size, -1)
            return names, values

        where = np.flatnonzero(planted >= 0)
        if len(where):
            group[where] = demanded(planted[where], rows[where]).names[0] // self.group_size
        counts = (self.min_attributes, self.max_attributes)
        attributes = draw_attributes(
            draws,
            rows,
            planted,
            demand,
            counts=(self.group_size, self.group_size) if is_always else counts,
            n_names=self.group_size,
            values=(0, self.n_values - 1),
        )
        column = attribute_map(
            string_array(self._names()),
            None,
            attributes.names + group * self.group_size,
            attributes.values,
            attributes.names >= 0,
        )
        x, y = self._event_places(rows, planted)
        return pa.record_batch([column, pa.array(x), pa.array(y)], schema=self._event_schema())

    def _event_places(self, rows: Int64s, planted: Int64s) -> tuple[Floats, Floats]:
        x, y = self._places("events", rows)
        where = np.flatnonzero(planted >= 0)
        if len(where):
            # At most half a radius off on each axis; clamping to the square only comes closer.
            side, half = int(SIDE_M * _CM), int(self.radius_m * _CM) // 2
            draws = self._stream("events/near")
            for axis, (coordinate, centre) in enumerate(
                zip((x, y), self._places("subscriptions", planted[where]), strict=True)
            ):
                offset = draws.integers(rows[where], axis, 2 * half + 1) - half
                coordinate[where] = np.clip(centre + offset, 0, side)
        return x / _CM, y / _CM

    def moves(self, n: int | None = None, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The first `n` moves (`n_moves` unless told) as a stream of (id, x, y)."""
        if n is None:
            n = self.n_moves
        check_integer("n", n, minimum=0)

        def batch(rows: Int64s) -> pa.RecordBatch:
            ids = self._stream("moves").integers(rows, 0, self.n_subscriptions)
            x, y = self._places("moves", rows)
            return pa.record_batch([ids, x / _CM, y / _CM], schema=MOVE_SCHEMA)

        return stream_of(MOVE_SCHEMA, n, batch_rows, batch)


def _reflected(coordinate: Floats, side: int) -> Int64s:
    folded = np.abs(np.rint(coordinate)) % (2 * side)
    return np.where(folded > side, 2 * side - folded, folded).astype(np.int64)


def _decimals(hundredths: Int64s) -> pa.StringArray:
    whole, rest = np.divmod(hundredths, _CM)
    return join(texts(whole), pick(_fractions(), rest))


@lru_cache(maxsize=1)
def _fractions() -> pa.StringArray:
    return string_array([f".{rest:02d}" for rest in range(_CM)])


def _variants() -> tuple[Variant, ...]:
    found = [Variant("clcb-default", ClcbWorkload.source, ClcbWorkload.description)]

    def add(name: str, source: str, description: str, **parameters: float | str) -> None:
        found.append(Variant(f"clcb-{name}", f"003 {source}", description, parameters))

    areas = ("0.001", "0.01", "0.1", "1")
    sizes = (
        (1000, "1k"),
        (10_000, "10k"),
        (100_000, "100k"),
        (250_000, "250k"),
        (500_000, "500k"),
        (750_000, "750k"),
        (1_000_000, "1m"),
    )
    for law, figure, parameters in (("", "Fig. 3", {}), ("zipf-", "Fig. 4", {"zipf": 1.0})):
        where = "Zipf positions, " if law else ""
        if law:
            add("zipf", figure, "Zipf positions", **parameters)
        for percent in areas:
            add(
                f"{law}area-{percent}",
                figure,
                f"{where}circles of {percent} % of the area",
                area_share=float(percent) / 100,
                **parameters,
            )
        for n, text in sizes:
            add(
                f"{law}{text}",
                f"{figure}, 5, 6",
                f"{where}{text.upper()} subscriptions",
                n_subscriptions=n,
                **parameters,
            )
        for percent in areas:
            if percent != "0.01":
                add(
                    f"{law}1m-area-{percent}",
                    figure,
                    f"{where}1M subscriptions, circles of {percent} % of the area",
                    n_subscriptions=1_000_000,
                    area_share=float(percent) / 100,
                    **parameters,
                )
    add("always", "Fig. 6b", "content that always matches", content="always")
    add(
        "always-1m",
        "Fig. 6b",
        "content that always matches, 1M subscriptions",
        content="always",
        n_subscriptions=1_000_000,
    )
    return tuple(found)


VARIANTS = _variants()
