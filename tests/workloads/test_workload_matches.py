"""Predicates against events, evaluated by SQLite: the same three-valued logic, other code.

The texts are SQL but for `NEAR`, `EXISTS name` and `TIMESTAMP '…'`, which are rewritten.
"""

from __future__ import annotations

import datetime
import math
import re
import sqlite3
from typing import Any

import numpy as np
import pytest

from tamis import workloads
from tamis.workloads.workload import SyntheticWorkload

EARTH_M = 6_371_008.8
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def near_on_plane(ex: float, ey: float, x: float, y: float, radius: float) -> bool:
    return (ex - x) ** 2 + (ey - y) ** 2 <= radius**2


def near_on_earth(ex: float, ey: float, x: float, y: float, radius: float) -> bool:
    a, b = math.radians(ey), math.radians(y)
    haversine = (
        math.sin((b - a) / 2) ** 2
        + math.cos(a) * math.cos(b) * math.sin(math.radians(x - ex) / 2) ** 2
    )
    return 2 * EARTH_M * math.asin(min(1, math.sqrt(haversine))) <= radius


def microseconds(when: datetime.datetime) -> int:
    return (when - EPOCH) // datetime.timedelta(microseconds=1)


def attributes(row: dict[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in row.items() if name not in ("numbers", "strings")}
    for column in ("numbers", "strings"):
        flat |= dict(row.get(column) or [])
    return {
        name: microseconds(value) if isinstance(value, datetime.datetime) else value
        for name, value in flat.items()
    }


class Sqlite:
    """Events in a table; an attribute that an event lacks is NULL."""

    def __init__(self, workload: workloads.Workload, n_events: int) -> None:
        rows = [attributes(row) for row in workload.events(n_events).read_all().to_pylist()]
        self.names = sorted({name for row in rows for name in row})
        self.database = sqlite3.connect(":memory:")
        self.database.execute("PRAGMA case_sensitive_like = ON")
        near = near_on_plane if workload.space == "plane" else near_on_earth
        self.database.create_function("near", 5, near, deterministic=True)
        self.database.execute(f"CREATE TABLE events ({', '.join(self.names)})")
        self.database.executemany(
            f"INSERT INTO events VALUES ({', '.join('?' * len(self.names))})",
            [[row.get(name) for name in self.names] for row in rows],
        )

    def matches(self, predicate: str) -> list[int]:
        text = predicate.replace("NEAR(", "near(x, y, ")
        text = re.sub(r"EXISTS (\w+)", r"\1 IS NOT NULL", text)
        text = re.sub(
            r"TIMESTAMP '([^']*)'",
            lambda found: str(microseconds(datetime.datetime.fromisoformat(found[1]))),
            text,
        )
        # Attributes that no event has.
        for name in sorted(set(re.findall(r"\b[as]\d+\b", text)) - set(self.names)):
            text = re.sub(rf"\b{name}\b", "NULL", text)
        query = f"SELECT rowid - 1 FROM events WHERE {text}"
        return [found for (found,) in self.database.execute(query)]


@pytest.mark.parametrize(
    "key",
    [
        "pcm-default",
        "pcm-zipf",
        "pcm-constraints-9",
        "pcm-constraints-4-total-5m",
        "pcm-strings-50",
        "hem-default",
        "hem-psi-e-30-d-80",
        "hem-d-900-w-0.5",
        "clcb-default",
        "clcb-zipf",
        "clcb-always",
        "fpga-default",
        "fpga-skewed",
        "fpga-predicates-5-to-15",
        "mix-default",
        "mix-areas",
        "mix-ranges",
        "mix-texts",
    ],
)
def test_planted_events_match_the_subscription_they_were_made_from(key: str) -> None:
    workload = workloads.get(key, planted=0.5)
    assert isinstance(workload, SyntheticWorkload)
    database = Sqlite(workload, 60)
    planted = workload.planted_subscriptions(60)
    assert 15 < (planted >= 0).sum() < 45
    for event in np.flatnonzero(planted >= 0):
        (predicate,) = workload._predicates(planted[event : event + 1]).to_pylist()
        assert event in database.matches(predicate), predicate


@pytest.mark.parametrize("key", ["fpga-1m", "pcm-constraints-9", "hem-d-300-psi-e-20"])
def test_where_chance_matches_nothing_one_event_in_ten_is_planted(key: str) -> None:
    workload = workloads.get(key)
    assert isinstance(workload, SyntheticWorkload)
    planted = workload.planted_subscriptions(5000) >= 0
    assert planted.mean() == pytest.approx(0.1, abs=0.02)


def test_defaults_in_which_chance_matches_are_not_planted() -> None:
    for key in ("pcm-default", "hem-default", "clcb-default", "pcm-zipf", "clcb-always"):
        workload = workloads.get(key)
        assert isinstance(workload, SyntheticWorkload)
        assert (workload.planted_subscriptions() < 0).all()


def test_planted_subscriptions_cover_the_whole_table() -> None:
    workload = workloads.get("fpga-default")
    assert isinstance(workload, SyntheticWorkload)
    planted = workload.planted_subscriptions(10_000)
    chosen = planted[planted >= 0]
    assert chosen.min() < 100_000
    assert chosen.max() > 5_900_000


@pytest.mark.parametrize(("key", "n_matching"), [("flights", 0.5), ("cities", 0.3)])
def test_alerts_on_real_data_are_valid_and_selective(key: str, n_matching: float) -> None:
    workload = workloads.get(key, n_subscriptions=400, seed=5)
    database = Sqlite(workload, 1000)
    table = workload.subscriptions().read_all()
    counts = [len(database.matches(text)) for text in table["predicate"].to_pylist()]
    assert np.mean(np.array(counts) > 0) > n_matching
    assert np.mean(counts) < 0.1 * 1000
    assert max(table["subscriber"].to_pylist()) > 5000


def test_alerts_on_flights_use_the_whole_language() -> None:
    texts = " ".join(
        workloads.get("flights", n_subscriptions=500)
        .subscriptions()
        .read_all()["predicate"]
        .to_pylist()
    )
    for word in ("BETWEEN", " IN (", "NOT IN", "LIKE", " OR ", "NOT (", "IS NULL", "EXISTS"):
        assert word in texts
    for word in ("TIMESTAMP", "<>", ">=", "<=", "wind_gust", "dep_delay", "carrier", "tailnum"):
        assert word in texts


def test_every_template_of_alerts_is_used() -> None:
    flights = workloads.get("flights", n_subscriptions=2000)
    shapes = {
        re.sub(r"'[^']*'|\d+(\.\d+)?|\([^()]*\)", "?", text)
        for text in flights.subscriptions().read_all()["predicate"].to_pylist()
    }
    assert len(shapes) == 14


def test_flights_carry_the_weather_of_their_hour() -> None:
    from tamis.workloads.flights import load_flights

    table = load_flights()
    assert len(table) == 336_776
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["carrier"], first["dest"], first["dep_delay"]) == ("UA", "IAH", 2)
    assert (first["temp"], first["wind_speed"]) == (39.02, pytest.approx(12.65858))
    assert table["temp"].null_count / len(table) < 0.01
    assert table["dep_time"].null_count == 8255


def test_cities_lie_on_the_earth_and_quotes_are_doubled() -> None:
    workload = workloads.get("cities", n_subscriptions=20_000)
    events = workload.events(34_000).read_all()
    assert -180 <= min(events["x"].to_pylist()) <= max(events["x"].to_pylist()) <= 180
    assert -90 <= min(events["y"].to_pylist()) <= max(events["y"].to_pylist()) <= 90
    texts = workload.subscriptions().read_all()["predicate"].to_pylist()
    assert all(text.count("'") % 2 == 0 for text in texts)
