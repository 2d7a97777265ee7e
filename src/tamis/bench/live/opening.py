"""Opening a directory, and what two processes that hold it share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tamis.bench import isolation
from tamis.bench.check import position_of, to_dicts
from tamis.bench.inputs import Inputs
from tamis.bench.live.figure import HEM, Figure
from tamis.bench.live.job import (
    Job,
    memory,
    n_constraints_of,
    result,
)
from tamis.bench.measure import timed
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

FIGURES = {
    "open": Figure("Matcher.open", "s", at_most=0.1, workload=HEM),
    "first match": Figure("the first match after it", "s"),
    "disk": Figure("bytes of the directory per constraint", "B"),
    "private": Figure("bytes that one more process adds for itself, per constraint", "B"),
    "shared": Figure(
        "share of what opening made resident that two processes hold in common",
        "share",
        at_least=0.5,
        workload=HEM,
    ),
}


def save(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The directory that the mode open opens."""
    job = Job(spec, channel)
    job.loaded().save(job.inputs.folder / "saved")
    return {}


def open_saved(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Opens the directory, matches, and says what memory that took once the others did too."""
    job = Job(spec, channel)
    path = job.inputs.folder / "saved"
    event = to_dicts(job.events(1))[0]
    at = position_of(event, job.workload.position)
    gc.collect()
    channel.send({"started": True})
    channel.wait()
    before = memory()
    with timed() as opening:
        matcher = Matcher.open(path, read_only=True, **job.options)
    with timed() as first:
        matcher.match(event, at=at)
    for other in to_dicts(job.events(100)):
        matcher.match(other, at=position_of(other, job.workload.position))
    assert len(matcher) == job.n
    channel.send({"open": True})
    channel.wait()
    after, stats = memory(), matcher.stats()
    channel.send({"looked": True})
    channel.wait()
    n_constraints = n_constraints_of(stats)
    n_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return result(
        {"open": opening.lap(1), "first match": first.lap(1)},
        {
            "open": opening.wall_ns / 1e9,
            "first match": first.wall_ns / 1e9,
            "disk": n_bytes / max(1, n_constraints),
        },
        {
            "n_constraints": n_constraints,
            "memory": {"before": before, "after": after},
            "stats": stats,
        },
    )


def _sharing(reports: Sequence[dict[str, Any]], n_constraints: int) -> dict[str, float]:
    added = []
    for each in reports[0]["details"]["processes"]:
        grown = {name: each["after"][name] - each["before"][name] for name in each["after"]}
        private = grown["Private_Clean"] + grown["Private_Dirty"]
        shared = grown["Shared_Clean"] + grown["Shared_Dirty"]
        added.append((private, shared))
    private, shared = added[1]
    return {
        "private": private / max(1, n_constraints),
        "shared": max(0, shared) / max(1, private + shared),
    }


def open_twice(
    spec: dict[str, Any], inputs: Inputs, on_phase: Callable[[str], None]
) -> dict[str, Any]:
    """Two processes that hold the matcher at the same time, the first of them opened alone."""
    saved = inputs.folder / "saved"
    if not saved.exists():
        isolation.call("save", spec, on_phase=on_phase)
    on_phase("opening")
    with ExitStack() as stack:
        children = [stack.enter_context(isolation.Child("open", spec)) for _ in range(2)]
        for child in children:
            child.receive()  # it has started: what it loads does not disturb the others
        for child in children:
            child.send({"go": "open"})
            child.receive()  # it is open
        # None may end before all have looked: pages are shared while two hold them.
        for step in ("look", "report"):
            for child in children:
                child.send({"go": step})
            messages = [child.receive() for child in children]
        reports = [message["result"] for message in messages]
    result: dict[str, Any] = reports[0]
    result["details"]["processes"] = [each["details"].pop("memory") for each in reports]
    result["figures"].update(_sharing(reports, result["details"]["n_constraints"]))
    return result
