"""Hypothesis profiles: `quick` by default, `TAMIS_HYPOTHESIS_PROFILE=thorough` for the long run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

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
