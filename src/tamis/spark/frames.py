"""What DataFrames must be like. Everything is checked on the driver, before a task starts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tamis.errors import ArgumentTypeError, UnavailableError


def check_frame(frame: Any, what: str) -> None:
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnavailableError(
            f"{what} is a DataFrame of Spark Connect, which tamis.spark does not support yet; "
            "use a classic session, as tamis.spark.session() makes it"
        )
    if not isinstance(frame, DataFrame):
        raise ArgumentTypeError(
            f"{what} must be a DataFrame of Spark, not a {type(frame).__name__}"
        )


def fields_of(frame: DataFrame) -> dict[str, T.DataType]:
    return {field.name: field.dataType for field in frame.schema.fields}
