"""How a pipeline went: as text, and as a page that needs nothing but a browser."""

from __future__ import annotations

import html
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tamis.matcher import Matcher
from tamis.spark.cache import open_shard
from tamis.spark.index import IndexRef
from tamis.spark.taskstats import TaskStats
from tamis.spark.worker import POSITION

_N_TIMED = 200  # subscriptions that are timed alone
_N_SLOWEST = 10
_REPETITIONS = 3
_N_BATCHES_KEPT = 100_000  # a stream may run for months
_N_BARS = 40


@dataclass
class Report:
    """What a run has done. Everything in it was measured in that run."""

    title: str
    index_path: str
    version: int = 0
    last_version: int = 0  # that of a stream's last batch
    n_subscriptions: int = 0
    n_rejected: int = 0
    n_shards: int = 0
    build_s: float | None = None
    match_s: float = 0.0  # of a stream: in its batches, without the time between them
    total_s: float = 0.0
    tasks: TaskStats = field(default_factory=TaskStats)
    n_batches: int = 0
    batches: deque[tuple[int, int, float]] = field(  # the last ones: number, events, seconds
        default_factory=lambda: deque(maxlen=_N_BATCHES_KEPT)
    )
    busiest: list[tuple[Any, int]] = field(default_factory=list)  # id, matches
    busiest_in: str = "this run"  # where those were counted
    slowest: list[tuple[Any, float, str]] = field(default_factory=list)  # id, µs an event, text
    slowest_of: str = "a sample"  # of which subscriptions, with which events
    notes: list[str] = field(default_factory=list)

    @property
    def n_events(self) -> int:
        return self.tasks.n_events

    @property
    def n_matches(self) -> int:
        return self.tasks.n_matches

    @property
    def skew(self) -> float:
        """The longest task against the one in the middle."""
        times = self.tasks.wall_s
        middle = statistics.median(times) if times else 0.0
        return max(times) / middle if middle else 1.0

    def add_batch(self, number: int, n_events: int, took_s: float) -> None:
        self.n_batches += 1
        self.batches.append((number, n_events, took_s))

    def lines(self) -> list[str]:
        """As text."""
        rate = self.n_events / self.match_s if self.match_s else 0.0
        versions = f"version {self.version}"
        if self.last_version > self.version:
            versions = f"version {self.last_version}, at first {self.version}"
        lines = [
            f"index      {self.index_path}, {versions}: {self.n_subscriptions:,} "
            f"subscriptions in {self.n_shards} shards, {self.n_rejected:,} rows rejected",
        ]
        if self.build_s is not None:
            lines.append(f"built in   {self.build_s:.1f} s")
        if self.n_events:
            lines += [
                f"events     {self.n_events:,} in {self.match_s:.1f} s: {rate:,.0f} a second",
                f"matches    {self.n_matches:,}",
                f"time       {self.tasks.cpu_s:.1f} s of CPU in Python workers, "
                f"{self.tasks.match_s:.1f} s in the engine",
                f"tasks      {len(self.tasks.wall_s)}, the longest {self.skew:.1f} × the one in "
                "the middle",
            ]
        else:
            lines.append("events     none came to a task")
        if self.batches:
            times = sorted(took for *_, took in self.batches)
            lines.append(
                f"batches    {self.n_batches:,}, {statistics.median(times):.2f} s in the middle, "
                f"{times[-1]:.2f} s at most"
            )
        if self.busiest:
            lines.append(f"busiest subscriptions: matches in {self.busiest_in}")
            lines += [f"  {n:>10,} ×  {id}" for id, n in self.busiest]
        if self.slowest:
            lines.append(f"slowest subscriptions of {self.slowest_of}, {_ALONE}")
            lines += [
                f"  {us:>8.3f} µs an event  {id}  {_short(text)}" for id, us, text in self.slowest
            ]
        return lines + self.notes

    def write_html(self, path: str | Path) -> None:
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def to_html(self) -> str:
        rate = self.n_events / self.match_s if self.match_s else 0.0
        figures = [
            ("subscriptions", f"{self.n_subscriptions:,}"),
            ("events", f"{self.n_events:,}"),
            ("matches", f"{self.n_matches:,}"),
            ("events a second", f"{rate:,.0f}"),
            ("seconds in all", f"{self.total_s:.1f}"),
        ]
        if self.tasks.wall_s:
            figures.append(("longest task / middle", f"{self.skew:.1f} ×"))
        tiles = "".join(
            f"<div class=tile><b>{html.escape(value)}</b><span>{name}</span></div>"
            for name, value in figures
        )
        parts = [f"<div class=tiles>{tiles}</div>"]
        if self.batches:
            last = list(self.batches)[-_N_BARS:]
            bars = [(f"batch {n}", events / took) for n, events, took in last if took]
            parts.append(_chart("Events a second, batch by batch", bars, "{:,.0f}"))
        if self.tasks.wall_s:
            longest = sorted(self.tasks.wall_s, reverse=True)[:_N_BARS]
            bars = [(f"task {place + 1}", took) for place, took in enumerate(longest)]
            parts.append(_chart("Seconds of the longest tasks", bars, "{:.2f}"))
        if self.busiest:
            bars = [(str(id), float(n)) for id, n in self.busiest]
            title = f"Busiest subscriptions: matches in {self.busiest_in}"
            parts.append(_chart(title, bars, "{:,.0f}"))
        if self.slowest:
            bars = [(f"{id}: {_short(text, 60)}", us) for id, us, text in self.slowest]
            title = f"Slowest subscriptions of {self.slowest_of}, {_ALONE}: µs an event"
            parts.append(_chart(title, bars, "{:.3f}"))
        text = html.escape("\n".join(self.lines()))
        title = html.escape(f"Tamis: {self.title}")
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
            f"<style>{_STYLE}</style><h1>{title}</h1>{''.join(parts)}"
            f"<h2>As text</h2><pre>{text}</pre></html>\n"
        )


def slowest_subscriptions(
    ref: IndexRef, events: pa.RecordBatch, has_position: bool, busiest: Sequence[Any]
) -> tuple[list[tuple[Any, float, str]], int]:
    """Of the busiest subscriptions and some others: each alone with these events. The slowest, and
    how many were timed."""
    manifest = ref.manifest
    predicates: dict[Any, str] = {}
    for shard in manifest.shards:
        opened = open_shard(ref.store, manifest, shard)
        try:
            found = [id for id in busiest if id in opened.matcher]
            each = max(1, _N_TIMED // len(manifest.shards))
            step = max(1, len(opened.matcher) // each)
            found += list(opened.matcher)[::step][:each]
            predicates |= {id: opened.matcher[id] for id in found}
        finally:
            opened.close()
    timed = []
    for id, text in predicates.items():
        alone = Matcher(engine="naive", space=manifest.space, threads=1)
        alone.subscribe(id, text)
        batch = alone.encode(events, position=POSITION if has_position else None)
        best_s = min(_seconds(alone, batch) for _ in range(_REPETITIONS))
        timed.append((id, best_s / events.num_rows * 1e6, text))
    return sorted(timed, key=lambda each: -each[1])[:_N_SLOWEST], len(timed)


def _seconds(matcher: Matcher, batch: Any) -> float:
    started = time.perf_counter()
    matcher.match_many(batch, output="count")
    return time.perf_counter() - started


# Within an index subscriptions share most of the work, and another engine does it.
_ALONE = "each alone on the engine naive, which compares predicates and is not their cost here"


def _short(text: str, width: int = 80) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _chart(title: str, bars: list[tuple[str, float]], form: str) -> str:
    """Horizontal bars."""
    most = max((value for _, value in bars), default=0.0) or 1.0
    rows = "".join(
        f"<tr><th>{html.escape(name)}<td><i style='width:{value / most:.2%}'></i>"
        f"<td>{form.format(value)}"
        for name, value in bars
    )
    return f"<h2>{html.escape(title)}</h2><table>{rows}</table>"


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2733; background: #fff }
.tiles { display: flex; flex-wrap: wrap; gap: 1rem }
.tile { border: 1px solid #d4dbe3; border-radius: .5rem; padding: .7rem 1.1rem }
.tile b { display: block; font-size: 1.5rem } .tile span { color: #5b6a7a }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 400; max-width: 24rem; padding-right: .7rem; font-size: .85rem }
td:nth-child(2) { width: 45% }
td:last-child { text-align: right; font-variant-numeric: tabular-nums }
i { display: block; height: .9rem; background: #2f6f9f; border-radius: 2px; min-width: 1px }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto }
"""
