"""What every workload has: its parameters, its subscriptions and its events.

A workload is a frozen set of parameters. Its tables are pure functions of them:
rows are drawn by number (see `_random`), so a table is the same whatever the
batch size, a longer table begins with the shorter one, and memory stays at one batch.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import TamisError, UnavailableError

from ._random import Int64s, Stream

BATCH_ROWS = 65_536
# A string array of Arrow holds 2 GiB; the longest predicates have under 2 KiB.
MAX_BATCH_ROWS = 1_000_000

SUBSCRIPTION_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("predicate", pa.string(), nullable=False),
        pa.field("subscriber", pa.int64(), nullable=False),
    ]
)

Plain = int | float | str | bool


class WorkloadError(TamisError, ValueError):
    """A workload that does not exist, or a parameter it cannot take."""


class MissingDataError(UnavailableError, ImportError):
    """A package with real data that is not installed."""


@dataclass(frozen=True)
class Variant:
    """A named set of parameters: a row of the table that `keys()` lists."""

    key: str
    source: str
    description: str
    parameters: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """Parameters from which subscriptions and events are generated.

    The same parameters give the same tables; subscriptions and events are drawn
    independently of one another.
    """

    family: ClassVar[str]
    space: ClassVar[str] = "plane"
    position: ClassVar[tuple[str, str] | None] = None
    choices: ClassVar[tuple[str, ...]] = ()
    size_parameter: ClassVar[str] = "n_subscriptions"

    key: str = ""
    source: str = ""
    description: str = ""
    seed: int = 1
    n_events: int = 1000

    def __post_init__(self) -> None:
        check_integer("seed", self.seed, minimum=0)
        check_integer("n_events", self.n_events)
        check_integer(self.size_parameter, self.n_subscriptions, maximum=1_000_000_000)
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Raise a WorkloadError for parameters that cannot be."""

    @property
    @abstractmethod
    def n_subscriptions(self) -> int:
        """The number of subscriptions."""

    @property
    def parameters(self) -> dict[str, Plain]:
        """Every parameter with its value, for reports."""
        about = {"key", "source", "description"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in about}

    def subscriptions(self, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """All subscriptions as a stream of (id, predicate, subscriber)."""

        def batch(rows: Int64s) -> pa.RecordBatch:
            return pa.record_batch(
                [pa.array(rows), self._predicates(rows), pa.array(self._subscribers(rows))],
                schema=SUBSCRIPTION_SCHEMA,
            )

        return stream_of(SUBSCRIPTION_SCHEMA, self.n_subscriptions, batch_rows, batch)

    def events(self, n: int | None = None, batch_rows: int = BATCH_ROWS) -> pa.RecordBatchReader:
        """The first `n` events (`n_events` unless told) as a stream."""
        n = self._n_events(n)
        return stream_of(self._event_schema(), n, batch_rows, self._events)

    def _n_events(self, n: int | None) -> int:
        if n is None:
            return self.n_events
        check_integer("n", n, minimum=0)
        return operator.index(n)

    @abstractmethod
    def _predicates(self, rows: Int64s) -> pa.StringArray:
        """The predicates of these subscriptions, as text."""

    def _subscribers(self, rows: Int64s) -> Int64s:
        return rows

    @abstractmethod
    def _event_schema(self) -> pa.Schema:
        """The schema of `events()`."""

    @abstractmethod
    def _events(self, rows: Int64s) -> pa.RecordBatch:
        """These rows of the stream of events."""

    def _stream(self, purpose: str) -> Stream:
        return Stream(self.seed, f"{self.family}/{purpose}")


@dataclass(frozen=True, kw_only=True)
class SyntheticWorkload(Workload):
    """A workload whose events may be planted: made to match a subscription chosen at random.

    `planted` is the share of such events. It is above 0 where chance alone matches nothing.
    """

    planted: float = 0.0

    def planted_subscriptions(self, n: int | None = None) -> Int64s:
        """For each of the first `n` events the subscription it was made to match, or -1."""
        return self._planted_in(np.arange(self._n_events(n), dtype=np.int64))

    def _planted_in(self, rows: Int64s) -> Int64s:
        draws = self._stream("planted")
        chosen = draws.integers(rows, 0, self.n_subscriptions)
        return np.where(draws.uniform(rows, 1) < self.planted, chosen, -1)

    def _check(self) -> None:
        check_share("planted", self.planted)


def stream_of(
    schema: pa.Schema, n_rows: int, batch_rows: int, batch: Callable[[Int64s], pa.RecordBatch]
) -> pa.RecordBatchReader:
    """A stream of `n_rows` rows; `batch` makes the rows with the given numbers."""
    check_integer("batch_rows", batch_rows, maximum=MAX_BATCH_ROWS)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, n_rows, batch_rows):
            yield batch(np.arange(first, min(first + batch_rows, n_rows), dtype=np.int64))

    return pa.RecordBatchReader.from_batches(schema, batches())


def check_integer(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> None:
    """Raise unless `value` is an integer within the limits."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        is_good = False
    else:
        number = operator.index(value)
        is_good = number >= minimum and (maximum is None or number <= maximum)
    if not is_good:
        if maximum is not None:
            wanted = f"an integer from {minimum} to {maximum}"
            if minimum == 1 and _is_number(value) and value < 1:
                wanted = "a positive integer"
        else:
            wanted = {0: "an integer from 0 up", 1: "a positive integer"}.get(
                minimum, f"an integer from {minimum} up"
            )
        raise WorkloadError(f"{name} must be {wanted}, not {value!r}")


def check_range(low_name: str, low: Any, high_name: str, high: Any, *, maximum: int) -> None:
    """Raise unless 1 <= low <= high <= maximum."""
    check_integer(low_name, low)
    check_integer(high_name, high, maximum=maximum)
    if low > high:
        raise WorkloadError(f"{low_name} must be at most {high_name} ({high}), not {low}")


def check_share(name: str, value: Any, *, is_open: bool = False) -> None:
    """Raise unless `value` is a number from 0 (excluded if open) to 1."""
    if not _is_number(value) or not 0 <= value <= 1 or (is_open and value == 0):
        wanted = "a number above 0 and up to 1" if is_open else "a number from 0 to 1"
        raise WorkloadError(f"{name} must be {wanted}, not {value!r}")


def check_not_negative(name: str, value: Any) -> None:
    """Raise unless `value` is a finite number from 0 up."""
    if not _is_number(value) or not math.isfinite(value) or value < 0:
        raise WorkloadError(f"{name} must be a number from 0 up, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
