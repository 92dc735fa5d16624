"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# No assertion about time: a slow machine is no failure.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")
