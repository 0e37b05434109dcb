"""No deadlines: on a busy machine a slow example says nothing about the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("format", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("format")
