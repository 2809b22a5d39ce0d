"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no fault of the code: examples are limited by their number, not by a clock.
settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")
