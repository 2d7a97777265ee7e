"""The live modes: what each does in its process, and the figures that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tamis.bench.live import call, change, churn, durable, load, move, opening
from tamis.bench.live.figure import Figure

FIGURES: dict[str, dict[str, Figure]] = {
    "load": load.FIGURES,
    "change": change.FIGURES,
    "move": move.FIGURES,
    "durable": durable.FIGURES,
    "open": opening.FIGURES,
    "call": call.FIGURES,
    "churn": churn.FIGURES,
}
TASKS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "load": load.load,
    "change": change.change,
    "move": move.move,
    "durable": durable.durable,
    "save": opening.save,
    "open": opening.open_saved,
    "call": call.call,
    "churn": churn.churn,
}
