"""A wrong answer yields no number: every engine's answers are compared with naive's.

A sample of the events, spread over all of them, is matched in every way that is measured: in
batches, one by one, and from dicts. An approximate engine may answer too much, never too little.
naive itself is compared with the plain Python oracle, on as many pairs of event and subscription
as that can afford, and its ways with one another.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tamis
from tamis.bench.answers import Difference, Ids, difference, sort_ids, split, walk
from tamis.bench.subject import CHECKER, Subject
from tamis.matches import Matches
from tamis.testing import oracle
from tamis.workloads import Workload

SAMPLE_EVENTS = 200
# The oracle takes some 10-50 µs for a pair: about a second in all.
ORACLE_EVENTS = 20
ORACLE_MATCHED = 50  # of each event's answers: chance alone seldom gives any

WAYS = ("batch", "single", "dict")
MIN_WAY_EVENTS = 20


def sample_rows(n_events: int, size: int = SAMPLE_EVENTS) -> list[int]:
    """`size` of the events, evenly spread; all of them if there are fewer."""
    size = min(size, n_events)
    return [place * n_events // size for place in range(size)]


def to_dicts(events: pa.Table) -> list[dict[str, Any]]:
    """Events as Python dicts: map columns are opened, nulls are absent."""
    maps = {field.name for field in events.schema if pa.types.is_map(field.type)}
    dicts = []
    for row in events.to_pylist():
        event: dict[str, Any] = {}
        for name, value in row.items():
            if name in maps:
                event.update(value or ())
            elif value is not None:
                event[name] = value
        dicts.append(event)
    return dicts


def take(events: pa.Table, rows: Sequence[int]) -> pa.Table:
    """Some rows as one table of one chunk."""
    return pa.concat_tables([events.slice(row, 1) for row in rows]).combine_chunks()


class Referee:
    """What naive says to the sampled events of a workload, and to any other when asked.

    naive is built for this when it is needed, unless it is measured anyway. With a path, what it
    says to the sample is kept there for other processes.
    """

    def __init__(
        self, workload: Workload, events: pa.Table, deliver: str, path: Path | None = None
    ) -> None:
        self.workload = workload
        self.deliver = deliver
        self.events = events
        self.rows = sample_rows(len(events))
        self.sample = take(events, self.rows) if self.rows else events
        self.dicts = to_dicts(self.sample)
        self._subject: Subject | None = None
        self._is_borrowed = False
        self._truth: list[Ids] | None = None
        self._path = path

    def borrow(self, subject: Subject | None) -> None:
        """Uses a naive that is measured; None gives it back."""
        if subject is None and not self._is_borrowed:
            return
        self._subject, self._is_borrowed = subject, subject is not None

    def release(self) -> None:
        """Gives back the memory of a naive of its own."""
        self._subject, self._is_borrowed = None, False

    def truth(self) -> list[Ids]:
        """The right answers to the sample."""
        if self._truth is None and self._path and self._path.exists():
            with np.load(self._path) as kept:
                self._truth = np.split(kept["ids"], kept["ends"][:-1]) if len(kept["ends"]) else []
        elif self._truth is None:
            self._truth = self._answer(self.sample)
            if self._path:
                aside = self._path.with_suffix(".tmp.npz")
                ends = np.cumsum([len(ids) for ids in self._truth], dtype=np.int64)
                np.savez(aside, ids=np.concatenate([ends[:0], *self._truth]), ends=ends)
                aside.replace(self._path)
        return self._truth

    def answer(self, event: int) -> Ids:
        """The right answer to one event."""
        return self._answer(self.events.slice(event, 1))[0]

    def _answer(self, events: pa.Table) -> list[Ids]:
        if self._subject is None:
            self._subject = Subject(self.workload, CHECKER)
        chunks = walk(self._subject.matcher, events, self.workload.position, self.deliver)
        return [ids for _, matches, _ in chunks for ids in split(matches)]


def answers_in(
    way: str,
    subject: Subject,
    referee: Referee,
    output: str,
    places: Sequence[int] | None = None,
) -> Iterator[Ids | int]:
    """The subject's answers to the sample in one way; counts if only those are asked for.

    One by one and from dicts, `places` says to which events of the sample; all unless told.
    """
    matcher, position, deliver = subject.matcher, subject.workload.position, referee.deliver
    places = range(len(referee.rows)) if places is None else places

    def opened(matches: Matches) -> Iterator[Ids | int]:
        if output == "count":
            yield from (int(count) for count in matches.counts)
        else:
            yield from split(matches)

    if way == "batch":
        for _, matches, _ in walk(matcher, referee.sample, position, deliver, output=output):
            yield from opened(matches)
    elif way == "single":
        for place in places:
            event = referee.sample.slice(place, 1)
            yield from opened(
                matcher.match_many(event, deliver=deliver, output=output, position=position)
            )
    else:
        for place in places:
            one = referee.dicts[place]
            yield sort_ids(matcher.match(one, at=position_of(one, position), deliver=deliver))


def position_of(
    event: dict[str, Any], position: tuple[str, str] | None
) -> tuple[float, float] | None:
    """The event's position for `match(at=…)`."""
    return None if position is None else (event[position[0]], event[position[1]])


def first_difference(
    rows: Sequence[int], expected: Sequence[Ids], got: Iterator[Ids | int], way: str
) -> Difference | None:
    """The first event of the sample with a wrong answer, or with a wrong count of them."""
    for row, right, answer in zip(rows, expected, got, strict=True):
        if isinstance(answer, int):
            if answer != len(right):
                short, long = max(0, len(right) - answer), max(0, answer - len(right))
                return Difference(row, [], [], short, long, 0, way)
        else:
            found = difference(row, right, answer, way)
            if found:
                return found
    return None


def check(
    subject: Subject, referee: Referee, outputs: Sequence[str], max_seconds: float = math.inf
) -> None:
    """Checks the subject's answers and records in it what was checked and what was found.

    In batches all of the sample is checked; in the other ways fewer events if that is slow.
    """
    events_of_way: dict[str, int] = {}
    facts: dict[str, Any] = {
        "by": CHECKER,
        "events": len(referee.rows),
        "ways": events_of_way,
        "outputs": list(outputs),
        "matches": sum(map(len, referee.truth())),
    }
    subject.check = facts
    truth = referee.truth()
    if subject.is_checker:
        found = _check_by_oracle(subject, referee, facts)
        if found:
            facts["difference"] = found.to_json()
            subject.wrong = f"wrong answer by the oracle: {found}"
            return
    places = list(range(len(truth)))
    for way in WAYS:
        begin = time.perf_counter()
        events_of_way[way] = len(places)
        rows, expected = [referee.rows[at] for at in places], [truth[at] for at in places]
        if not subject.is_exact:
            found_rates = rates(expected, answers_in(way, subject, referee, "ids", places))
            if way == "batch" or found_rates["false_negatives"]:
                facts.update(found_rates)
            if found_rates["false_negatives"]:
                n_missed = found_rates["false_negatives"]
                subject.wrong = f"wrong answer ({way}): an approximate engine misses {n_missed}"
                return
        for output in _outputs_of(way, outputs) if subject.is_exact else ():
            got = answers_in(way, subject, referee, output, places)
            found = first_difference(rows, expected, got, f"{way}, {output}")
            if found:
                facts["difference"] = found.to_json()
                subject.wrong = f"wrong answer: {found}"
                return
        if way == "batch" and truth:
            seconds_per_event = (time.perf_counter() - begin) / len(truth) / len(outputs)
            n_fitting = int(min(len(truth), max_seconds / max(seconds_per_event, 1e-9)))
            places = sample_rows(len(truth), max(n_fitting, MIN_WAY_EVENTS))


def _outputs_of(way: str, outputs: Sequence[str]) -> Sequence[str]:
    return outputs if way != "dict" else ("ids",)


def rates(expected: Sequence[Ids], got: Iterator[Ids | int]) -> dict[str, Any]:
    """How far an approximate engine is from the right answers, over all events of the sample."""
    n_expected = n_got = n_missing = n_extra = n_wrong = 0
    for event, (right, answer) in enumerate(zip(expected, got, strict=True)):
        assert not isinstance(answer, int)
        found = difference(event, right, answer)
        n_expected += len(right)
        n_got += len(answer)
        if found:
            n_wrong += 1
            n_missing += found.n_missing
            n_extra += found.n_extra
    return {
        "approximate": True,
        "events_with_differences": n_wrong,
        "false_negatives": n_missing,
        "false_positives": n_extra,
        "false_negative_rate": n_missing / n_expected if n_expected else 0.0,
        "false_positive_rate": n_extra / n_got if n_got else 0.0,
    }


def _check_by_oracle(
    subject: Subject, referee: Referee, facts: dict[str, Any]
) -> Difference | None:
    """naive against the oracle: the subscriptions spread over the workload, and those matched.

    Texts of the spread ones are the workload's own; of those matched, the matcher's.
    """
    matcher, workload = subject.matcher, subject.workload
    places = sample_rows(len(referee.rows), ORACLE_EVENTS)
    events = take(referee.sample, places)
    spread = {id: tamis.parse(text) for id, text in subject.texts}
    extra: dict[Any, Any] = {}
    n_pairs = 0
    facts.update(by="oracle", events=len(places), subscriptions=len(spread))
    answered = [
        ids
        for _, matches, _ in walk(matcher, events, workload.position, "subscriptions")
        for ids in split(matches)
    ]
    for place, ids in zip(places, answered, strict=True):
        event = referee.dicts[place]
        at = position_of(event, workload.position)
        step = max(1, len(ids) // ORACLE_MATCHED)
        matched = [id for id in ids.tolist()[::step][:ORACLE_MATCHED] if id not in spread]
        for id in matched:
            extra[id] = extra.get(id) or tamis.parse(matcher[id])
        asked = {**spread, **{id: extra[id] for id in matched}}
        n_pairs += len(asked)
        right = [
            id for id, node in asked.items() if oracle.matches(node, event, at, workload.space)
        ]
        got = [id for id in ids.tolist() if id in asked]
        found = difference(referee.rows[place], sort_ids(right), sort_ids(got), "oracle")
        if found:
            return found
    facts.update(pairs=n_pairs, matched_subscriptions=len(extra))
    if referee.deliver == "subscribers" and subject.subscriber_of is not None:
        return _check_subscribers(subject, referee, places, answered, facts)
    return None


def _check_subscribers(
    subject: Subject,
    referee: Referee,
    places: Sequence[int],
    answered: Sequence[Ids],
    facts: dict[str, Any],
) -> Difference | None:
    """Subscribers are those of the subscriptions that matched, each once."""
    assert subject.subscriber_of is not None
    ids, subscribers = subject.subscriber_of
    facts["subscribers_of"] = "the subscriptions matched, by the workload's table"
    for place, matched in zip(places, answered, strict=True):
        right = np.unique(subscribers[np.searchsorted(ids, matched)])
        found = difference(referee.rows[place], right, referee.truth()[place], "subscribers")
        if found:
            return found
    return None
