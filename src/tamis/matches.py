"""What `match_many` found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import _core
from tamis.errors import ArgumentError, ArgumentTypeError


class Matches:
    """The matches of a batch of events, in the form that `output` asked for.

    output      what is there
    "ids"       `offsets` and `ids`: the ids of event i are ids[offsets[i]:offsets[i + 1]]
    "bitset"    `bits` [n_events, n_words] over `domain`, the ids of all bit positions
    "count"     `counts` alone

    `counts` and `len()` are there always, `to_ids(i)` for ids and bitsets. Events read with
    `match_json` also have `lines` and `errors`.
    """

    def __init__(
        self,
        result: _core.MatchResult,
        output: str,
        *,
        lines: npt.NDArray[np.int64] | None = None,
        errors: list[tuple[int, str]] | None = None,
        n_errors: int = 0,
    ) -> None:
        self._result = result
        # Cached by hand: functools.cached_property of 3.11 has one lock for all instances, which a
        # fork in another thread may leave locked for ever.
        self._cache: dict[str, Any] = {}
        self.output = output
        self.lines = lines
        """The line of each event, counted from 1 (match_json)."""
        self.errors = errors if errors is not None else []
        """(line, reason) of the first lines that were skipped (match_json with on_error="skip")."""
        self.n_errors = n_errors
        """How many lines were skipped."""

    def __len__(self) -> int:
        """How many events there were."""
        return int(self._result.n_events)

    def __repr__(self) -> str:
        return f"<Matches of {len(self)} events, {int(self.counts.sum())} in all>"

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many matched each event."""
        counts: npt.NDArray[np.int64] = self._cached("counts", self._result.counts)
        return counts

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """[n_events + 1]: where each event's ids begin."""
        self._need("ids", "offsets")
        offsets: npt.NDArray[np.int64] = self._cached("offsets", self._result.offsets)
        return offsets

    @property
    def ids(self) -> pa.Array:
        """The ids of all events, one behind the other, as an int64 or string array of Arrow."""
        self._need("ids", "ids")
        return self._cached("ids", lambda: _to_arrow(self._result.id_buffers()))

    @property
    def bits(self) -> npt.NDArray[np.uint64]:
        """[n_events, n_words]: bit k of word w stands for domain[64 * w + k]."""
        self._need("bitset", "bits")
        bits: npt.NDArray[np.uint64] = self._result.bits()
        return bits

    @property
    def domain(self) -> pa.Array:
        """The id of each bit position; null where there is none, and those are never set."""
        self._need("bitset", "domain")
        return self._cached("domain", self._make_domain)

    def _make_domain(self) -> pa.Array:
        ends, values, is_known = self._result.domain_buffers()
        ids = _to_arrow((ends, values))
        if is_known.all():
            return ids
        validity = pa.py_buffer(np.packbits(is_known, bitorder="little"))
        return pa.Array.from_buffers(ids.type, len(ids), [validity, *ids.buffers()[1:]])

    @property
    def counters(self) -> dict[str, int]:
        """What the engines did: filters, constraints, candidates, cells, nodes, bits."""
        counters: dict[str, int] = self._result.counters
        return counters

    def to_ids(self, event: int) -> list[int] | list[str]:
        """The ids of one event."""
        if not isinstance(event, int | np.integer):
            raise ArgumentTypeError(f"event must be an int, not {event!r}")
        if not 0 <= event < len(self):
            raise ArgumentError(f"event must be from 0 to {len(self) - 1}, not {event}")
        ids: list[int] | list[str] = _to_arrow(self._result.id_buffers_of(int(event))).to_pylist()
        return ids

    def __iter__(self) -> Iterator[list[int] | list[str]]:
        """The ids of each event in turn."""
        return (self.to_ids(event) for event in range(len(self)))

    def to_arrow(self) -> pa.LargeListArray:
        """A list of ids for each event."""
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), self.ids)

    def pairs(self) -> pa.Table:
        """A row (event, id) for each match."""
        events = np.repeat(np.arange(len(self), dtype=np.int64), self.counts)
        return pa.table({"event": events, "id": self.ids})

    def _cached(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def _need(self, output: str, what: str) -> None:
        if self.output != output:
            raise ArgumentError(f"{what} needs output={output!r}, and this is {self.output!r}")


def _to_arrow(buffers: tuple[Any, Any]) -> pa.Array:
    ends, values = buffers
    if ends is None:
        return pa.array(values)
    return pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(values))
