"""What the matches must be: one matcher with the engine naive, outside of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tamis import Matcher
from tamis.workloads import Workload

Pairs = set[tuple[Any, Any]]


def expected_pairs(workload: Workload, n_events: int, deliver: str = "subscriptions") -> Pairs:
    """(number of an event, id) of each match."""
    matcher = Matcher(engine="naive", space=workload.space)
    matcher.subscribe_many(workload.subscriptions().read_all())
    events = workload.events(n_events).read_all()
    found = matcher.match_many(events, deliver=deliver, position=workload.position)
    return set(zip(*found.pairs().to_pydict().values(), strict=True))


def pairs_of(matches: DataFrame, output: str) -> Pairs:
    """The pairs of a result, whatever its form; counts become pairs with ranks."""
    rows = [tuple(row) for row in matches.collect()]
    if output == "pairs":
        assert len(set(rows)) == len(rows), "a pair stands twice"
        return set(rows)
    if output == "list":
        assert all(len(set(ids)) == len(ids) for *_, ids in rows), "an id stands twice in a list"
        return {(event, id) for event, ids in rows for id in ids}
    return as_counts(rows)


def as_counts(rows: Iterable[tuple[Any, int]]) -> Pairs:
    return {(event, count) for event, count in rows if count}


def counts_of(pairs: Pairs) -> Pairs:
    counts: dict[Any, int] = {}
    for event, _ in pairs:
        counts[event] = counts.get(event, 0) + 1
    return set(counts.items())


def attribute_arguments(workload: Workload) -> dict[str, Any]:
    """How `match` is told where a workload's attributes are."""
    schema = workload.events(0).schema
    maps = [field.name for field in schema if pa.types.is_map(field.type)]
    arguments: dict[str, Any] = {"position": workload.position}
    if maps:
        arguments["attrs"] = maps
    return arguments


def options_of(workload: Workload) -> dict[str, str]:
    """The same as texts."""
    arguments = attribute_arguments(workload)
    return {name: ",".join(value) for name, value in arguments.items() if value}
