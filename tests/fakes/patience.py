"""How long a test waits for an event before it calls the wait a hang.

No test depends on how fast the machine is: the limit is far beyond what any event needs on a busy
one, and below the time limit of a whole test, so that the test can report what it waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 300.0
_PAUSE_S = 0.02


def wait_until(condition: Callable[[], object], what: str, *, pause_s: float = _PAUSE_S) -> None:
    """Ask until the condition holds, for what has no event to wait for."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {HANG_S:.0f} s for {what}"
        time.sleep(pause_s)
