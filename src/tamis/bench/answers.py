"""Answers as sets: in one order, digested, and compared.

The digest of a run of events is made of one digest for each event, over its sorted ids; engines
may answer in any order, and two exact ones have the same digest.

    event 0: ids ── sort ── blake2b ─┐
    event 1: ids ── sort ── blake2b ─┴─ blake2b ── digest of the first n events
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.matcher import Matcher
from tamis.matches import Matches

# Ids of one chunk in memory at most (8 bytes each), and events of one chunk.
MAX_CHUNK_IDS = 8_000_000
MAX_CHUNK_EVENTS = 4096
FIRST_CHUNK_EVENTS = 8

MAX_SHOWN_IDS = 10

Ids = npt.NDArray[Any]  # sorted; int64, or str objects


def sort_ids(ids: pa.Array | Sequence[Any]) -> Ids:
    """The ids in order; one that stands there twice stays twice."""
    if isinstance(ids, pa.Array):
        array: Ids = ids.to_numpy(zero_copy_only=False)
    elif len(ids) and isinstance(ids[0], str):
        array = np.array(ids, dtype=object)
    else:
        array = np.array(ids, dtype=np.int64)
    return np.sort(array)


def digest_event(ids: Ids) -> bytes:
    """A digest of one event's sorted ids."""
    if ids.dtype == object:
        content = b"s" + b"\0".join(str(each).encode() for each in ids)
    else:
        content = b"i" + np.ascontiguousarray(ids, dtype="<i8").tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True)
class Difference:
    """How an answer differs from what it should be."""

    event: int
    missing: list[Any]
    extra: list[Any]
    n_missing: int
    n_extra: int
    n_repeated: int
    way: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __str__(self) -> str:
        parts = []
        for what, shown, n in (
            ("missing", self.missing, self.n_missing),
            ("extra", self.extra, self.n_extra),
        ):
            if n:
                more = f" and {n - len(shown)} more" if n > len(shown) else ""
                parts.append(f"{what} {', '.join(map(str, shown)) or 'ids'}{more}")
        if self.n_repeated:
            parts.append(f"{self.n_repeated} ids given twice")
        where = f" ({self.way})" if self.way else ""
        return f"event {self.event}{where}: {'; '.join(parts)}"


def difference(event: int, expected: Ids, got: Ids, way: str = "") -> Difference | None:
    """How `got` differs from `expected`, both sorted; None if it does not."""
    if len(expected) == len(got) and np.array_equal(expected, got):
        return None
    unique = np.unique(got)
    missing, extra = np.setdiff1d(expected, unique), np.setdiff1d(unique, expected)
    return Difference(
        event,
        missing[:MAX_SHOWN_IDS].tolist(),
        extra[:MAX_SHOWN_IDS].tolist(),
        len(missing),
        len(extra),
        len(got) - len(unique),
        way,
    )


def walk(
    matcher: Matcher,
    events: pa.Table,
    position: tuple[str, str] | None,
    deliver: str,
    *,
    output: str = "ids",
    max_seconds: float | None = None,
) -> Iterator[tuple[int, Matches, int]]:
    """(first event, matches, nanoseconds) in chunks that fit memory and stop at the time limit.

    Chunks grow while answers are small: an event may match everything there is.
    """
    started = time.perf_counter()
    first, size, most_matches, ns_per_event = 0, FIRST_CHUNK_EVENTS, 0, 0.0
    while first < len(events):
        size = min(size, MAX_CHUNK_EVENTS, max(1, MAX_CHUNK_IDS // (most_matches + 1)))
        if max_seconds is not None and first:
            left_ns = (max_seconds - (time.perf_counter() - started)) * 1e9
            if left_ns <= 0:
                return
            size = min(size, max(1, int(left_ns / max(1.0, ns_per_event))))
        batch = matcher.encode(events.slice(first, size), position=position)
        begun = time.perf_counter_ns()
        matches = matcher.match_many(batch, deliver=deliver, output=output)
        elapsed_ns = time.perf_counter_ns() - begun
        yield first, matches, elapsed_ns
        ns_per_event = elapsed_ns / len(matches)
        most_matches = max(most_matches, int(matches.counts.max()))
        first += len(matches)
        size *= 4


def split(matches: Matches) -> Iterator[Ids]:
    """The sorted ids of each event of a chunk."""
    if matches.output == "bitset":
        for event in range(len(matches)):
            yield sort_ids(matches.to_ids(event))
        return
    ids, offsets = matches.ids, matches.offsets
    for event in range(len(matches)):
        yield sort_ids(ids.slice(offsets[event], offsets[event + 1] - offsets[event]))


@dataclass
class Answers:
    """What an engine answered to the first events, as digests and counts."""

    digests: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    ns_per_event: float = 0.0
    """Of the last chunk: an estimate for planning, not a measurement."""

    def __len__(self) -> int:
        return len(self.digests)

    def digest(self, n_events: int) -> str:
        """The digest of the first `n_events`, or of all if there are fewer."""
        return hashlib.blake2b(b"".join(self.digests[:n_events]), digest_size=16).hexdigest()

    def first_disagreement(self, other: Answers) -> int | None:
        """The first event that the two answer differently."""
        for event, (mine, its) in enumerate(zip(self.digests, other.digests, strict=False)):
            if mine != its:
                return event
        return None


def collect(
    matcher: Matcher,
    events: pa.Table,
    position: tuple[str, str] | None,
    deliver: str,
    max_seconds: float,
) -> Answers:
    """The answers to as many events as fit the time limit, the first chunk at least."""
    answers = Answers()
    for _, matches, elapsed_ns in walk(matcher, events, position, deliver, max_seconds=max_seconds):
        for ids in split(matches):
            answers.digests.append(digest_event(ids))
            answers.counts.append(len(ids))
        for name, value in matches.counters.items():
            answers.counters[name] = answers.counters.get(name, 0) + value
        answers.ns_per_event = elapsed_ns / len(matches)
    return answers
