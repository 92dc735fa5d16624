"""Defers Ctrl-C until the end of a step that must not be interrupted.

Invariant: the second Ctrl-C always interrupts, so a step that blocks can be stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Raise KeyboardInterrupt for a SIGINT inside the block only when the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals in the main thread only.
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
