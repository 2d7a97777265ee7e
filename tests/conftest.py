"""Hypothesis profiles: `quick` by default, `TAMIS_HYPOTHESIS_PROFILE=thorough` for the long run.

`pytest -m gpu` runs the tests of the engines for GPUs: those marked so, and every test whose
parameter `engine` is one of these. Without a GPU they are left out, and the header says why.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

import tamis
from tamis import _core

# Events are made from predicates, so a large example is slow to draw: that is no mistake.
_SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]

for _name, _max_examples in (("quick", 150), ("thorough", 2000)):
    settings.register_profile(
        _name,
        max_examples=_max_examples,
        deadline=None,
        # The same examples for everybody who lands a change; new ones for whoever runs the tests.
        derandomize="CI" in os.environ,
        print_blob=True,
        suppress_health_check=_SLOW_DRAWS,
    )

settings.load_profile(os.environ.get("TAMIS_HYPOTHESIS_PROFILE", "quick"))

_GPU_ENGINES = {engine.name for engine in tamis.engines() if engine.device == "cuda"}


def pytest_report_header() -> str:
    reason = _core.cuda_unavailable()
    return f"gpu: {f'its tests are left out: {reason}' if reason else 'there is one'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("engine") in _GPU_ENGINES:
            item.add_marker(pytest.mark.gpu)
        needs_gpu = item.get_closest_marker("gpu") is not None
        (left_out if needs_gpu and _core.cuda_unavailable() else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
