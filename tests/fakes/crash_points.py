"""Where tests crash: at a sample of the steps, at a third of them, or at all, which takes long.

Several tests crash at the same steps in different ways. Each of them takes another part of the
steps, by its phase, so that with a third each, no step is left out between them.
"""

from __future__ import annotations

import pytest

STEPS = pytest.mark.parametrize(
    "every",
    [
        pytest.param(7, id="few"),
        pytest.param(3, id="some", marks=pytest.mark.system),
        pytest.param(1, id="all", marks=pytest.mark.torture),
    ],
)
PHASES = {"kept": 0, "lost": 1, "torn": 2}
