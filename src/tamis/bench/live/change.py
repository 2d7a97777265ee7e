"""Single changes among all subscriptions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tamis.bench.live.figure import HEM, Figure
from tamis.bench.live.job import (
    MAX_SAMPLES,
    NEW_IDS,
    Job,
    each_call,
    result,
)
from tamis.bench.measure import Lap, percentiles, timed
from tamis.matcher import Matcher

if TYPE_CHECKING:
    from tamis.bench.child import Channel

MOVES_A_BATCH = 1000
MERGE_SECONDS = 60.0

FIGURES = {
    "subscribe p50": Figure("one subscribe", "us", at_most=20, workload=HEM),
    "subscribe p99": Figure("one subscribe", "us"),
    "subscribe in merge p50": Figure("one subscribe during a merge of everything", "us"),
    "subscribe in merge p99": Figure(
        "one subscribe during a merge of everything", "us", at_most=2000, workload=HEM
    ),
    "unsubscribe p50": Figure("one unsubscribe", "us"),
    "unsubscribe p99": Figure("one unsubscribe", "us"),
    "move p50": Figure("one move", "us"),
    "move p99": Figure("one move", "us"),
    "move_many": Figure(f"a move in a table of {MOVES_A_BATCH}", "us"),
}


def change(spec: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Single changes among all subscriptions; the last of them while everything is merged."""
    job = Job(spec, channel)
    matcher = job.loaded()
    n_samples = max(1, min(MAX_SAMPLES, job.n // 4))
    texts = job.texts(n_samples)
    laps: dict[str, Lap] = {}
    figures: dict[str, float] = {}
    details: dict[str, Any] = {"n_live": len(matcher)}

    def note(name: str, lap: Lap) -> None:
        laps[name] = lap
        for each in ("p50", "p99"):
            figures[f"{name} {each}"] = lap.details[f"{each}_ns"] / 1000

    job.say("subscribe")
    new = [(NEW_IDS + place, text) for place, text in enumerate(texts)]
    note("subscribe", each_call(new, matcher.subscribe))
    if hasattr(job.workload, "moves"):
        job.say("move")
        matcher.flush()
        moves = job.workload.moves(n_samples).read_all().combine_chunks()
        columns = (moves[name].to_pylist() for name in ("id", "x", "y"))
        note("move", each_call(list(zip(*columns, strict=True)), matcher.move))
        matcher.flush()
        batches = [(moves.slice(at, MOVES_A_BATCH),) for at in range(0, len(moves), MOVES_A_BATCH)]
        lap = each_call(batches, matcher.move_many)
        laps["move_many"] = Lap(len(moves), lap.wall_ns, lap.cpu_ns, lap.details)
        figures["move_many"] = lap.wall_ns / len(moves) / 1000
    job.say("unsubscribe")
    matcher.flush()
    gone = np.random.default_rng(1).permutation(job.n)[:n_samples].tolist()
    note("unsubscribe", each_call([(id,) for id in gone], matcher.unsubscribe))
    job.say("subscribe during a merge")
    matcher.flush()
    note("subscribe in merge", _subscribe_in_merge(job, matcher, texts, details))
    details["stats"] = matcher.stats()
    return result(laps, figures, details)


def _subscribe_in_merge(
    job: Job, matcher: Matcher, texts: list[str], details: dict[str, Any]
) -> Lap:
    """Single subscribes from when a batch makes the largest segment merge until that is over."""
    part = job.table().slice(0, job.n // 3 + 1)
    first = 2 * NEW_IDS
    ids = pa.array(np.arange(first, first + len(part)))
    table = part.set_column(0, "id", ids)
    n_merges = matcher.stats()["n_merges"]
    matcher.subscribe_many(table)
    laps: list[int] = []
    now, subscribe, end = time.perf_counter_ns, matcher.subscribe, time.monotonic() + MERGE_SECONDS
    id = 3 * NEW_IDS
    with timed() as watch:
        while matcher.stats()["n_merges"] == n_merges and time.monotonic() < end:
            for text in texts[:64]:
                id += 1
                begin = now()
                subscribe(id, text)
                laps.append(now() - begin)
    details["merge_seconds"] = watch.wall_ns / 1e9
    if not laps:  # it was over at once
        return each_call([(id, texts[0])], subscribe)
    lap = watch.lap(len(laps))
    lap.details = percentiles(laps)
    return lap
