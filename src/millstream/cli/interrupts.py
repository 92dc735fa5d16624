"""Ctrl-C that waits for a step which must not be cut in two.

Invariant: the second Ctrl-C always interrupts, so that a step that blocks cannot hold a person.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt after the block for the first SIGINT that comes inside it."""
    if threading.current_thread() is not threading.main_thread():
        # Signals only ever reach the main thread.
        yield
        return
    is_interrupted = False

    def defer(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        if is_interrupted:
            raise KeyboardInterrupt
        is_interrupted = True

    before = signal.signal(signal.SIGINT, defer)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_interrupted:
        raise KeyboardInterrupt
