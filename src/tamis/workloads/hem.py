"""The workload of 002 (HEM): many intervals a subscription over few attributes.

Source: 002 Table 2 and section 6.3 (Fig. 5-10). In the paper's letters: n subscriptions
of psi_s intervals of width w (a share of the domain) over d attributes, events with psi_e
of them, attributes by Zipf's law with parameter alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from ._arrow import NUMBERS, attribute_map, join, pick, string_array, texts
from ._random import Int64s, zipf_weights
from ._sparse import draw_attributes
from .workload import (
    SyntheticWorkload,
    Variant,
    WorkloadError,
    check_integer,
    check_not_negative,
    check_share,
)


class Intervals(NamedTuple):
    """lows..highs, both included, on attribute names.  Each array: [psi_s, n_filters]"""

    names: Int64s
    lows: Int64s
    highs: Int64s


@dataclass(frozen=True, kw_only=True)
class HemWorkload(SyntheticWorkload):
    """Subscriptions `a3 BETWEEN 1 AND 300000 AND …`; events dense, or sparse where psi_e < d."""

    family: ClassVar[str] = "hem"
    choices: ClassVar[tuple[str, ...]] = (
        (
            "The paper's events are a data set of the Chinese stock market (8 June 2018, 50 "
            "attributes), which is not to be had. Integers drawn uniformly from the domain stand in "
            "for it, for events and for the bounds of intervals; the paper reports that the "
            "distribution of values hardly matters."
        ),
        "Every interval has the width w exactly and lies within the domain; its place is uniform.",
        "The attributes of a subscription differ; each is as likely as any other unless zipf > 0.",
        "Where psi_e < d, an event's attributes are drawn as a subscription's are.",
        (
            "The number of attributes in events is not given for the sweeps of d and alpha: 20, "
            "the default."
        ),
        (
            "Where chance gives less than a match in ten events (psi_e far below d, small w, large "
            "psi_s), one event in ten is planted."
        ),
    )

    key: str = "hem-default"
    source: str = "002 Table 2"
    description: str = "1M subscriptions of 10 intervals of width 0.3 over 20 attributes"
    n_events: int = 500
    n_subscriptions: int = 1_000_000
    d: int = 20
    psi_s: int = 10
    psi_e: int = 20
    w: float = 0.3
    domain: int = 1_000_000
    zipf: float = 0.0

    def _check(self) -> None:
        super()._check()
        check_integer("d", self.d, maximum=100_000)
        check_integer("psi_s", self.psi_s, maximum=self.d)
        check_integer("psi_e", self.psi_e, maximum=self.d)
        check_share("w", self.w, is_open=True)
        check_integer("domain", self.domain, minimum=2, maximum=1_000_000_000)
        check_not_negative("zipf", self.zipf)
        if self.planted > 0 and self.psi_e < self.psi_s:
            raise WorkloadError(
                f"psi_e must be at least psi_s ({self.psi_s}) where events are planted, "
                f"not {self.psi_e}"
            )

    @property
    def is_dense(self) -> bool:
        """Whether every event has every attribute; then each is a column of its own."""
        return self.psi_e == self.d

    def _names(self) -> list[str]:
        return [f"a{place}" for place in range(self.d)]

    def _filters(self, rows: Int64s) -> Intervals:
        draws = self._stream("filters")
        names = draws.distinct(rows, self.psi_s, self.d, zipf_weights(self.d, self.zipf))
        width = max(1, round(self.w * self.domain))
        lows = np.stack(
            [1 + draws.integers(rows, 1000 + k, self.domain - width + 1) for k in range(self.psi_s)]
        )
        return Intervals(names, lows, lows + (width - 1))

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        first = string_array([f"{name} BETWEEN " for name in self._names()])
        later = join(" AND ", first)
        parts: list[pa.Array | str] = []
        for k, (name, low, high) in enumerate(zip(*self._filters(rows), strict=True)):
            parts += [pick(later if k else first, name), texts(low), " AND ", texts(high)]
        return join(*parts)

    def _event_schema(self) -> pa.Schema:
        if self.is_dense:
            return pa.schema([pa.field(name, pa.int64()) for name in self._names()])
        return pa.schema([pa.field("numbers", NUMBERS)])

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        draws = self._stream("events")
        planted = self._planted_in(rows)

        def demand(subscriptions: Int64s, events: Int64s) -> tuple[Int64s, Int64s]:
            names, lows, highs = self._filters(subscriptions)
            inside = [
                draws.integers(events, 5000 + k, highs[k] - lows[k] + 1) for k in range(len(names))
            ]
            return names, lows + np.stack(inside)

        if not self.is_dense:
            attributes = draw_attributes(
                draws,
                rows,
                planted,
                demand,
                counts=(self.psi_e, self.psi_e),
                n_names=self.d,
                values=(1, self.domain),
                weights=zipf_weights(self.d, self.zipf),
            )
            is_present = attributes.names >= 0
            column = attribute_map(string_array(self._names()), None, *attributes, is_present)
            return pa.record_batch([column], schema=self._event_schema())

        values = np.stack([1 + draws.integers(rows, k, self.domain) for k in range(self.d)])
        where = np.flatnonzero(planted >= 0)
        if len(where):
            for name, value in zip(*demand(planted[where], rows[where]), strict=True):
                values[name, where] = value
        return pa.record_batch([pa.array(value) for value in values], schema=self._event_schema())


def _variants() -> tuple[Variant, ...]:
    found = [Variant("hem-default", HemWorkload.source, HemWorkload.description)]

    def add(source: str, **parameters: float) -> None:
        # A key spells every parameter that differs from the default.
        spelled = {"n_subscriptions": "n", "psi_s": "psi-s", "psi_e": "psi-e"}
        words, phrases = [], []
        for name, value in parameters.items():
            text = f"{value / 1e6:g}m" if name == "n_subscriptions" else f"{value:g}"
            if name != "planted":
                words.append(f"{spelled.get(name, name)}-{text}")
                phrases.append(f"{name} = {text.upper()}")
        found.append(Variant(f"hem-{'-'.join(words)}", source, ", ".join(phrases), parameters))

    for n in (0.3, 1, 3, 5, 7, 9):
        add("002 Fig. 5", n_subscriptions=round(n * 1_000_000))
    for psi_s in (5, 10, 15, 20):
        add("002 Table 2, one parameter changed", psi_s=psi_s, planted=0.1 if psi_s >= 15 else 0.0)
    for psi_s in (5, 10, 15, 20, 25, 30):
        add("002 Fig. 6", psi_s=psi_s, psi_e=30, d=30, w=0.7)
    for psi_e in (30, 40, 50, 60, 70, 80):
        add("002 Fig. 7", psi_e=psi_e, d=80, planted=0.1 if psi_e <= 50 else 0.0)
    widths = [tenth / 10 for tenth in range(1, 10)]
    for w in widths:
        add("002 Table 2, one parameter changed", w=w, planted=0.1 if w < 0.2 else 0.0)
    for w in widths:
        add("002 Fig. 8", w=w, psi_s=5)
    for d in (30, 100, 300, 500, 700, 900):
        add("002 Fig. 9", d=d, w=0.5, planted=0.1 if d >= 100 else 0.0)
    found.append(
        Variant(
            "hem-d-300-psi-e-20",
            "002 Table 2, one parameter changed",
            "d = 300, psi_e = 20",
            {"d": 300, "psi_e": 20, "planted": 0.1},
        )
    )
    add("002 Table 2, one parameter changed", zipf=1)
    for alpha in (0, 1, 2, 3, 4, 5):
        add("002 Fig. 10", zipf=alpha, d=50, psi_s=5, w=0.5)
    return tuple(found)


VARIANTS = _variants()
