"""What DataFrames must be like. Everything is checked on the driver, before a task starts."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tamis.errors import ArgumentTypeError, UnavailableError


def check_classic(value: Any, what: str) -> None:
    if type(value).__module__.startswith("pyspark.sql.connect"):
        raise UnavailableError(
            f"{what} is a {type(value).__name__} of Spark Connect, which tamis.spark does not "
            "support yet; use a classic session, as tamis.spark.session() makes it"
        )


def check_frame(frame: Any, what: str) -> None:
    check_classic(frame, what)
    if not isinstance(frame, DataFrame):
        raise ArgumentTypeError(
            f"{what} must be a DataFrame of Spark, not a {type(frame).__name__}"
        )


def arrow_schema_of(schema: T.StructType) -> pa.Schema:
    """As Spark has it in UTC; newer versions want to be told the time zone."""
    words: dict[str, Any] = {}
    if "timezone" in signature(to_arrow_schema).parameters:
        words["timezone"] = "UTC"
    arrow: pa.Schema = to_arrow_schema(schema, **words)
    return arrow


def fields_of(frame: DataFrame) -> dict[str, T.DataType]:
    return {field.name: field.dataType for field in frame.schema.fields}


def column(*path: str) -> Column:
    """The column of that name, or a field within it, whatever characters the names have."""
    return F.col(".".join(f"`{part.replace('`', '``')}`" for part in path))
