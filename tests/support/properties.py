"""Settings for properties that Hypothesis tries: none of them is about time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# By default an example that takes 200 ms fails, and so do inputs that are made slowly: on a busy
# machine that is the machine.
at_any_speed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
