"""SQL: `SELECT * FROM tamis_match(TABLE(events), '/data/alerts', id => 'event')`.

Arguments are those of the format `tamis`; the id is the column `id` unless told. There is no
`route`: which rows a task gets is up to the query, which may say `TABLE(events) PARTITION BY …`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.functions import udtf
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult, UserDefinedTableFunction

from tamis.errors import ArgumentError
from tamis.spark.frames import arrow_schema_of, check_classic
from tamis.spark.index import IndexRef
from tamis.spark.matching import EventMatcher
from tamis.spark.scanning import ARGUMENTS, TamisSource, number_from_text, wanted_from_texts

_ROWS_PER_BATCH = 8192


@dataclass
class _Result(AnalyzeResult):
    """What a query looks like once it was analysed; the tasks get it."""

    matcher: EventMatcher | None = None
    events: T.StructType | None = None


class TamisMatch:
    """The table function. Spark hands it rows one by one; they are matched in batches."""

    def __init__(self, result: _Result | None = None) -> None:
        assert result is not None
        assert result.matcher is not None
        assert result.events is not None
        self._matcher = result.matcher
        self._schema = arrow_schema_of(result.events)
        self._times = [
            f.name for f in result.events.fields if isinstance(f.dataType, T.TimestampType)
        ]
        self._rows: list[dict[str, Any]] = []

    @staticmethod
    def analyze(
        events: AnalyzeArgument, index: AnalyzeArgument, **options: AnalyzeArgument
    ) -> AnalyzeResult:
        if not events.isTable or not isinstance(events.dataType, T.StructType):
            raise ArgumentError("the first argument of tamis_match must be a table: TABLE(events)")
        values = {}
        for name, argument in {"index": index, **options}.items():
            if name not in ARGUMENTS:
                raise ArgumentError(
                    f"tamis_match has no argument {name}; it has {', '.join(ARGUMENTS)}"
                )
            if not isinstance(argument.value, str | int):
                raise ArgumentError(
                    f"{name} of tamis_match must be a text or an integer, not {argument.value!r}"
                )
            values[name] = str(argument.value)
        if "id" not in values and "id" not in events.dataType.names:
            raise ArgumentError(
                "tamis_match needs id => the column that says which event it is, for the table has "
                f"none called id; there are {', '.join(events.dataType.names)}"
            )
        values.setdefault("id", "id")
        version = number_from_text("version", values.get("version"))
        ref = IndexRef.open(values["index"], version)
        wanted = wanted_from_texts(values)
        wanted.check(ref)
        matcher, schema = wanted.plan(ref, events.dataType)
        return _Result(schema, matcher=matcher, events=events.dataType)

    def eval(self, row: Any, *_: Any, **__: Any) -> Iterator[tuple[Any, ...]]:
        event = row.asDict()
        for name in self._times:
            if (
                event[name] is not None
            ):  # Spark gives times of the worker's zone, which they do not say
                event[name] = event[name].astimezone()
        self._rows.append(event)
        if len(self._rows) >= _ROWS_PER_BATCH:
            yield from self.terminate()

    def terminate(self) -> Iterator[tuple[Any, ...]]:
        if not self._rows:
            return
        batch = pa.RecordBatch.from_pylist(self._rows, schema=self._schema)
        self._rows = []
        for found in self._matcher(iter([self._matcher.columns.take(batch)])):
            yield from zip(*(column.to_pylist() for column in found.columns), strict=True)


def register(spark: SparkSession) -> None:
    """Makes the format `tamis` and the table function `tamis_match` known to a session."""
    check_classic(spark, "spark")
    spark.dataSource.register(TamisSource)
    spark.udtf.register("tamis_match", cast(UserDefinedTableFunction, udtf(TamisMatch)))
