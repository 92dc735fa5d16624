"""Reads what a door logs that is being attacked."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_CLOSED = re.compile(r"kafka: ([^ ]+): the connection is closed: .+", re.DOTALL)
_REFUSED = re.compile(r"kafka: [^ ]+: \w+ is refused: too many elements.+", re.DOTALL)


class LogWitness(logging.Handler):
    """Remembers who was hung up on, and everything that should not have been logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.closed: list[str] = []
        self.bad: list[str] = []
        self.recent: deque[bytes] = deque(maxlen=40)

    def emit(self, record: logging.LogRecord) -> None:
        said = _CLOSED.fullmatch(record.getMessage())
        if said and record.exc_info is None:
            self.closed.append(said[1])
        elif _REFUSED.fullmatch(record.getMessage()):
            # Answered with an error, and the connection goes on.
            pass
        else:
            self.bad.append(logging.Formatter().format(record))

    def check(self) -> None:
        """Fail, with the inputs that may have caused it, if anything went wrong."""
        if self.bad:
            inputs = "\n".join(data.hex() for data in self.recent)
            raise AssertionError(f"{self.bad[0]}\nlast inputs, oldest first:\n{inputs}")


@contextmanager
def watched_log() -> Iterator[LogWitness]:
    witness = LogWitness()
    loggers = [logging.getLogger("millstream"), logging.getLogger("asyncio")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(witness)
        logger.propagate = False
    try:
        yield witness
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(witness)
            logger.propagate = propagate
