"""Tamis: which of millions of standing subscriptions does this event satisfy?

>>> import tamis
>>> m = tamis.Matcher()
>>> m.subscribe("hot", "area = 'north' AND temp > 30")
>>> m.match({"area": "north", "temp": 35})
['hot']
"""

import sys as _sys
from importlib.metadata import version as _version

from tamis._core import EventBatch
from tamis.engines import Engine, engines
from tamis.errors import (
    ArgumentError,
    ArgumentTypeError,
    BatchError,
    EventError,
    LanguageError,
    StorageError,
    TamisError,
    UnavailableError,
    UnknownIdError,
)
from tamis.language import parse
from tamis.matcher import Matcher
from tamis.matches import Matches

if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "tamis needs an interpreter with its global lock: objects such as Matches are not yet safe "
        "without it. Start Python with PYTHON_GIL=1, or use a build that is not free-threaded; "
        "matching releases the lock and uses all cores in either case"
    )

__version__ = _version("tamis")

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "BatchError",
    "Engine",
    "EventBatch",
    "EventError",
    "LanguageError",
    "Matcher",
    "Matches",
    "StorageError",
    "TamisError",
    "UnavailableError",
    "UnknownIdError",
    "engines",
    "parse",
]
