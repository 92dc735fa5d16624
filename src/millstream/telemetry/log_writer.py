"""Writes the log in a thread of its own, so that nobody waits for who reads it.

A terminal that was stopped, or a pipe whose reader is busy, takes no more. A broker that waited for
it would serve nobody meanwhile.

Invariant: lines are written in the order of their events. At most `MOST_WAITING` wait to be; what
comes while there are as many is left out, and how much that was is told as soon as there is room.
After a crash of the process: what still waited is lost.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TextIO

MOST_WAITING = 10_000
_LAST_WORDS_S = 1.0


class LogWriter(logging.Handler):
    """Takes events from any thread."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Never waits for the stream."""
        try:
            line = self.format(record)
        except Exception:  # Outer edge: an event that cannot be told is no matter for who told it.
            self.handleError(record)
            return
        with self._changed:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(line)
            else:
                self._left_out += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait for what was told to be written, but not for long: perhaps nobody reads it."""
        with self._changed:
            self._changed.wait_for(self._is_idle, timeout=_LAST_WORDS_S)

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_writing

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines, left_out = [*self._waiting], self._left_out
                self._waiting.clear()
                self._left_out = 0
                self._is_writing = True
            if left_out:
                lines.append(self.format(_left_out_event(left_out)))
            # There is nobody to tell that the stream is closed.
            with suppress(OSError, ValueError):
                self._stream.write("".join(f"{line}\n" for line in lines))
                self._stream.flush()
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()


def _left_out_event(count: int) -> logging.LogRecord:
    return logging.LogRecord(
        __name__,
        logging.WARNING,
        __file__,
        0,
        "%(events)d events were left out here: the log was not read fast enough",
        ({"events": count},),
        None,
    )
