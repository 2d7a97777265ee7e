"""One engine with the subscriptions of a workload in it: what is measured."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import tamis
from tamis.bench.answers import Answers
from tamis.bench.measure import Lap
from tamis.bench.plan import Pairs
from tamis.engines import Engine
from tamis.matcher import Matcher
from tamis.workloads import Workload

CHECKER = "naive"
# Texts kept for the oracle, spread over the workload.
MAX_KEPT_TEXTS = 2000


class Subject:
    """A matcher of one engine, and what is known about it.

    With spare threads it is deployed and its batches are matched on more than it is measured on,
    for measuring single events, which take one thread whatever the matcher has.
    """

    def __init__(
        self,
        workload: Workload,
        engine: str,
        parameters: Pairs = (),
        threads: int = 1,
        keeps_subscribers: bool = False,
        spare_threads: int = 1,
    ) -> None:
        self.workload = workload
        self.engine = engine
        self.parameters = parameters
        self.threads = threads
        self.answers = Answers()
        self.check: dict[str, Any] = {}
        self.wrong = ""
        """Why its answers are wrong; empty if they are right."""
        self.error = ""
        """Why it could not be measured."""
        self.deployment: Lap | None = None
        self.texts: list[tuple[Any, str]] = []
        """(id, predicate) as the workload gave them, for the oracle."""
        self.subscriber_of: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        """Ids in order and the subscriber of each, if they are kept."""
        self._keeps_subscribers = keeps_subscribers
        self._n_matcher_threads = max(threads, spare_threads)
        self._matcher: Matcher | None = None

    @property
    def key(self) -> tuple[str, Pairs]:
        return self.engine, self.parameters

    @property
    def facts(self) -> Engine | None:
        """Its row in the table of engines; None for auto."""
        return next((each for each in tamis.engines() if each.name == self.engine), None)

    @property
    def is_exact(self) -> bool:
        return self.facts is None or self.facts.exact

    @property
    def is_checker(self) -> bool:
        return self.engine == CHECKER

    @property
    def matcher(self) -> Matcher:
        if self._matcher is None:
            self.build()
        assert self._matcher is not None
        return self._matcher

    def empty_matcher(self) -> Matcher:
        """The same engine without subscriptions: the cost of a call."""
        return Matcher(self.engine, self.workload.space, self._n_matcher_threads, self._numbers())

    def build(self, on_rows: Callable[[int], None] = lambda rows: None) -> Lap:
        """Deploys the workload's subscriptions, chunk by chunk, and waits for the index.

        The texts are made on this thread between the chunks: that time is not counted. Work of
        other threads meanwhile, such as merges, counts as CPU time.
        """
        self.release()
        matcher = self.empty_matcher()
        stride = max(1, self.workload.n_subscriptions // MAX_KEPT_TEXTS)
        texts: list[tuple[Any, str]] = []
        ids: list[Any] = []
        subscribers: list[Any] = []
        n_rows, wall_ns, own_cpu_ns = 0, 0, 0
        chunks: Iterator[pa.RecordBatch] = iter(self.workload.subscriptions())
        cpu_begin = time.process_time_ns()
        while True:
            own_begin = time.thread_time_ns()
            chunk = next(chunks, None)
            if chunk is not None:
                on_rows(n_rows)
                for row in range(-n_rows % stride, len(chunk), stride):
                    texts.append((chunk["id"][row].as_py(), chunk["predicate"][row].as_py()))
                if self._keeps_subscribers:
                    ids.append(chunk["id"].to_numpy())
                    subscribers.append(chunk["subscriber"].to_numpy())
            own_cpu_ns += time.thread_time_ns() - own_begin
            begin = time.perf_counter_ns()
            if chunk is None:
                matcher.flush()
            else:
                matcher.subscribe_many(chunk)
                n_rows += len(chunk)
            wall_ns += time.perf_counter_ns() - begin
            if chunk is None:
                break
        cpu_ns = max(0, time.process_time_ns() - cpu_begin - own_cpu_ns)
        self._matcher = matcher
        self.texts = texts[:MAX_KEPT_TEXTS]
        if self._keeps_subscribers:
            all_ids, all_subscribers = np.concatenate(ids), np.concatenate(subscribers)
            order = np.argsort(all_ids)
            self.subscriber_of = all_ids[order], all_subscribers[order]
        self.deployment = Lap(n_rows, wall_ns, cpu_ns)
        return self.deployment

    def release(self) -> None:
        """Gives the matcher's memory back."""
        self._matcher = None
        gc.collect()

    def bytes(self) -> dict[str, Any]:
        """Memory of store, tables and indexes, and what it holds."""
        stats = self.matcher.stats()
        segments = stats["segments"]
        n_constraints = sum(each["n_constraints"] for each in segments)
        table = sum(each["n_table_bytes"] for each in segments)
        index = sum(each["n_index_bytes"] for each in segments)
        return {
            "store": stats["n_store_bytes"],
            "table": table,
            "index": index,
            "n_filters": sum(each["n_filters"] for each in segments),
            "n_constraints": n_constraints,
            "per_constraint": (table + index) / n_constraints if n_constraints else None,
        }

    def _numbers(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.parameters}
