"""What ends a pipeline early, in one line."""

from __future__ import annotations

import re

# py4j comes with Spark and has no types.
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tamis.errors import TamisError

SPARK_ERRORS = (PySparkException, Py4JError)
"""What Spark raises."""

_TRACEBACK = "Traceback (most recent call last):"


class PipelineError(TamisError, RuntimeError):
    """What Spark could not do; its own error, with the traceback, is the cause."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, and what is there then."""


def reason_of(error: BaseException) -> str:
    """An error's cause in one line: that of the Python worker if it failed there."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage() or error.java_exception.toString())
    _, sign, trace = text.rpartition(_TRACEBACK)
    if sign:
        # The calls are indented; the error stands behind them.
        text = "\n".join(line for line in trace.splitlines() if line[:1].strip())
        text = re.sub(r"^tamis\.[\w.]+: ", "", text)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line)
    return line or type(error).__name__
