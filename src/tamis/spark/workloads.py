"""The workloads as DataFrames of any size.

Rows are drawn by their numbers, so a table has the same rows for the same seed whatever its
partitions; each task makes its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tamis import workloads
from tamis.errors import ArgumentError
from tamis.spark.frames import check_classic
from tamis.workloads import Workload
from tamis.workloads.workload import SUBSCRIPTION_SCHEMA

EVENT_ID = "event"
"""The column with the number of an event."""

_MAX_ROWS = 65_536  # made at a time


def subscriptions(
    spark: SparkSession,
    workload: str | Workload,
    *,
    n_partitions: int | None = None,
    **parameters: Any,
) -> DataFrame:
    """A workload's subscriptions: id, predicate, subscriber.

    `workload` is a key of `tamis.workloads` with `parameters`, or a workload.
    """
    chosen = _workload(workload, parameters)
    make = _Rows(chosen, "subscriptions")
    return _frame(spark, chosen.n_subscriptions, n_partitions, make, SUBSCRIPTION_SCHEMA)


def events(
    spark: SparkSession,
    workload: str | Workload,
    n: int | None = None,
    *,
    n_partitions: int | None = None,
    **parameters: Any,
) -> DataFrame:
    """A workload's first `n` events, with their numbers in the column event."""
    chosen = _workload(workload, parameters)
    schema = chosen._event_schema()
    if EVENT_ID in schema.names:
        raise ArgumentError(f"the events of {chosen.key} have a column {EVENT_ID} already")
    numbered = pa.schema([pa.field(EVENT_ID, pa.int64(), nullable=False), *schema])
    return _frame(spark, chosen._n_events(n), n_partitions, _Rows(chosen, "events"), numbered)


def _workload(workload: str | Workload, parameters: dict[str, Any]) -> Workload:
    if isinstance(workload, str):
        return workloads.get(workload, **parameters)
    if parameters:
        raise ArgumentError("parameters belong to the key of a workload, and this is a workload")
    return workload


def _frame(
    spark: SparkSession, n_rows: int, n_partitions: int | None, make: _Rows, schema: pa.Schema
) -> DataFrame:
    check_classic(spark, "spark")
    numbers = spark.range(0, n_rows, 1, n_partitions)
    return numbers.mapInArrow(make, from_arrow_schema(schema))


@dataclass(frozen=True)
class _Rows:
    """Runs in the tasks: numbers of rows in, rows out."""

    workload: Workload
    what: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = np.asarray(batch.column(0).to_numpy(), dtype=np.int64)
            for begin in range(0, len(numbers), _MAX_ROWS):
                yield self._make(numbers[begin : begin + _MAX_ROWS])

    def _make(self, rows: Any) -> pa.RecordBatch:
        if self.what == "events":
            made = self.workload._events(rows)
            return pa.record_batch(
                [pa.array(rows), *made.columns], names=[EVENT_ID, *made.schema.names]
            )
        return pa.record_batch(
            [
                pa.array(rows),
                self.workload._predicates(rows),
                pa.array(self.workload._subscribers(rows)),
            ],
            names=SUBSCRIPTION_SCHEMA.names,
        )
