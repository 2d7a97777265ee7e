"""What tests of Tamis, and of programs that use it, can lean on.

`truth` and `matches` are the oracle, which defines the meaning of a predicate;
`load_cases` reads the hand-written cases; `strategies` makes random predicates and
events for Hypothesis and is loaded when first asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from tamis.testing.cases import Case, Event, load_cases
from tamis.testing.oracle import matches, normalise, truth

# Not `strategies`: a star import must not need Hypothesis.
__all__ = ["Case", "Event", "load_cases", "matches", "normalise", "truth"]


def __getattr__(name: str) -> Any:
    if name == "strategies":
        return importlib.import_module("tamis.testing.strategies")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
