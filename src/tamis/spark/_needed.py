"""Says what to install where PySpark is missing. It is imported before whatever needs PySpark."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

from tamis.errors import UnavailableError


class MissingSparkError(UnavailableError, ImportError):
    """PySpark is not installed."""


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # somebody has blocked it
        return False


if not _is_there("pyspark"):
    raise MissingSparkError('tamis.spark needs PySpark; pip install "tamis[spark]"')

# Nothing here goes through pandas: PySpark only wants to see it.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
