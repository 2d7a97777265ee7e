"""Subscriptions and events to measure with: the papers' workloads, mixes of our own, and real data.

    from tamis import workloads
    workload = workloads.get("pcm-default", seed=1, n_filters=1000)
    workload.subscriptions(), workload.events(10)      # streams of Arrow batches

`keys()` lists every workload; the parameters of each are fields of its class.
"""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from . import cities, clcb, flights, fpga, hem, mix, pcm
from .cities import CitiesWorkload
from .clcb import ClcbWorkload
from .flights import FlightsWorkload
from .fpga import FpgaWorkload
from .hem import HemWorkload
from .mix import MixWorkload
from .pcm import PcmWorkload
from .workload import MissingDataError, Variant, Workload, WorkloadError

__all__ = [
    "CitiesWorkload",
    "ClcbWorkload",
    "FlightsWorkload",
    "FpgaWorkload",
    "HemWorkload",
    "MissingDataError",
    "MixWorkload",
    "PcmWorkload",
    "Workload",
    "WorkloadError",
    "families",
    "get",
    "keys",
]

_FAMILIES: dict[str, tuple[type[Workload], tuple[Variant, ...]]] = {
    "pcm": (PcmWorkload, pcm.VARIANTS),
    "hem": (HemWorkload, hem.VARIANTS),
    "clcb": (ClcbWorkload, clcb.VARIANTS),
    "fpga": (FpgaWorkload, fpga.VARIANTS),
    "mix": (MixWorkload, mix.VARIANTS),
    "flights": (FlightsWorkload, flights.VARIANTS),
    "cities": (CitiesWorkload, cities.VARIANTS),
}
_BY_KEY: dict[str, tuple[type[Workload], Variant]] = {
    variant.key: (kind, variant) for kind, variants in _FAMILIES.values() for variant in variants
}


def families() -> tuple[str, ...]:
    """The families of workloads; each has its own parameters."""
    return tuple(_FAMILIES)


def keys(family: str | None = None) -> tuple[str, ...]:
    """The keys of all workloads, or of one family's, the default first."""
    if family is None:
        return tuple(_BY_KEY)
    if family not in _FAMILIES:
        raise WorkloadError(f"family must be one of {', '.join(_FAMILIES)}, not {family!r}")
    return tuple(variant.key for variant in _FAMILIES[family][1])


def get(key: str, **overrides: Any) -> Workload:
    """The workload `key`, with other values for some parameters.

    `n_subscriptions` sets the size of any workload, whatever its family calls it.
    """
    if key not in _BY_KEY:
        close = get_close_matches(str(key), _BY_KEY, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see tamis.workloads.keys()"
        raise WorkloadError(f"key must be the key of a workload, not {key!r}; {hint}")
    kind, variant = _BY_KEY[key]
    if "n_subscriptions" in overrides and kind.size_parameter not in overrides:
        overrides[kind.size_parameter] = overrides.pop("n_subscriptions")
    about = {"key", "source", "description"}
    known = [field.name for field in fields(kind) if field.name not in about]
    for name in overrides:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
            raise WorkloadError(f"the family {kind.family} has no parameter {name}; {hint}")
    return kind(
        **{
            "key": key,
            "source": variant.source,
            "description": variant.description,
            **variant.parameters,
            **overrides,
        }
    )
