"""Where tests crash: at a sample of the steps, at a fifth of them, or at all, which takes long.

Several tests crash at the same steps in different ways. Each of them takes another part of the
steps, by its phase, so that together they crash at more of them.
"""

from __future__ import annotations

import pytest

STEPS = pytest.mark.parametrize(
    "every",
    [
        pytest.param(13, id="few"),
        pytest.param(5, id="some", marks=pytest.mark.system),
        pytest.param(1, id="all", marks=pytest.mark.torture),
    ],
)
PHASES = {"kept": 0, "lost": 1, "torn": 2}
