"""One call of match with a dict: what is neither encoding nor the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tamis.bench.check import to_dicts
from tamis.bench.live.figure import Figure
from tamis.bench.live.job import (
    Job,
    result,
)
from tamis.bench.measure import Lap, timed

if TYPE_CHECKING:
    from tamis.bench.child import Channel

CALL_ROUNDS = 20

FIGURES = {
    "match": Figure("match of a dict", "ns"),
    "encode": Figure("encoding it, in a long list", "ns"),
    "engine": Figure("matching it encoded, in a long batch", "ns"),
    "overhead": Figure("what is left", "ns", at_most=1000, most=1000),
}


def call(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """match of single dicts, less what encoding and the engine take in long batches."""
    job = Job(spec, channel)
    matcher = job.loaded()
    dicts = to_dicts(job.events(job.cell.n_events))
    batch = matcher.encode(dicts)
    best: dict[str, Lap] = {}

    def single() -> None:
        for event in dicts:
            matcher.match(event)

    ways: dict[str, Callable[[], Any]] = {
        "match": single,
        "encode": lambda: matcher.encode(dicts),
        "engine": lambda: matcher._match_batch(batch, "subscriptions", "ids"),
    }
    for _ in range(CALL_ROUNDS):
        for name, way in ways.items():
            with timed() as watch:
                way()
            lap = watch.lap(len(dicts))
            if name not in best or lap.cpu_ns < best[name].cpu_ns:
                best[name] = lap
    figures = {name: lap.cpu_ns / lap.n for name, lap in best.items()}
    figures["overhead"] = figures["match"] - figures["encode"] - figures["engine"]
    return result(best, figures, {"stats": matcher.stats()})
