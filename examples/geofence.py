"""Geofences on earth: NEAR takes a longitude, a latitude and metres."""

import sys

import tamis
from tamis.workloads.cities import load_cities

matcher = tamis.Matcher(space="earth")
matcher.subscribe("around Berlin", "NEAR(13.41053, 52.52437, 30000)", subscriber="alice")
matcher.subscribe(
    "big and near Berlin",
    "NEAR(13.41053, 52.52437, 300000) AND population > 500000",
    subscriber="alice",
)
matcher.subscribe(
    "ring around Paris",  # within 50 km, but not within 15
    "NEAR(2.3488, 48.85341, 50000) AND NOT NEAR(2.3488, 48.85341, 15000)",
    subscriber="bob",
)
matcher.subscribe(
    "both sides of the date line",
    "NEAR(180, -17, 400000) AND timezone LIKE 'Pacific/%'",
    subscriber="carol",
)

# One event, with its position beside its attributes.
print("Potsdam:", matcher.match({"population": 185_000}, at=(13.06566, 52.39886)))

# Many events: real cities, whose columns x and y are the position.
cities = load_cities()
found = matcher.match_many(cities, position=("x", "y"))

sys.stdout.reconfigure(encoding="utf-8")  # names of cities need it, whatever the terminal
names_of: dict[str, list[str]] = {id: [] for id in matcher}
for event, id in zip(*found.pairs().to_pydict().values(), strict=True):
    names_of[id].append(cities["name"][event].as_py())
for id, names in names_of.items():
    print(f"{id}: {len(names)} of {len(cities)} cities: {', '.join(names[:4])} …")

# To whom is each report sent? Each subscriber hears of it once.
people = matcher.match_many(cities, position=("x", "y"), deliver="subscribers")
print({name: people.ids.to_pylist().count(name) for name in ("alice", "bob", "carol")})
