"""The engines there are, and what each can do."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tamis import _core


@dataclass(frozen=True)
class Parameter:
    """A number that an engine can be built with."""

    name: str
    preset: float
    low: float
    high: float
    meaning: str


@dataclass(frozen=True)
class Engine:
    """An algorithm that indexes filters and answers which match."""

    name: str
    device: str
    exact: bool
    description: str
    supports: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    unavailable: str

    @property
    def available(self) -> bool:
        """Can it run here? If not, `unavailable` says why."""
        return not self.unavailable


def engines() -> list[Engine]:
    """Every engine, in order of priority, available here or not."""
    return [
        Engine(**{**facts, "parameters": tuple(Parameter(*each) for each in facts["parameters"])})
        for facts in _core.engines()
    ]


def _apply_environment() -> None:
    """TAMIS_SIMD=v2|avx2|avx512 caps the instruction set, for tests and measurements."""
    level = os.environ.get("TAMIS_SIMD")
    if level:
        _core.set_simd_level(level)


_apply_environment()
