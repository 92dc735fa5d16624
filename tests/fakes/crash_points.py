"""Where tests crash: at all steps, which takes long, or at a part of them.

Several tests crash at the same steps in different ways. Each of them takes another part of the
steps, by its phase, so that between them no step is left out.
"""

from __future__ import annotations

import pytest

STEPS = pytest.mark.parametrize(
    "every",
    [
        pytest.param(3, id="some"),
        pytest.param(1, id="all", marks=pytest.mark.torture),
    ],
)
PHASES = {"kept": 0, "lost": 1, "torn": 2}
