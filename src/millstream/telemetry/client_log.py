"""Log lines that a client can cause, limited in number.

Of each kind and client address a few lines a minute are written. The others are counted, and the
minute ends with one line that gives their number and the last of them:

    89778 more of these in the last minute: kafka: 10.0.0.7:52011: the connection is closed: ...

Invariant: at most `_MOST_KEYS` counts are held. Addresses beyond that share one count per kind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from millstream.clock import Clock, MonotonicClock

LINES_PER_MINUTE = 5
"""Lines of one kind and address that are written in full."""

_MINUTE_MS = 60_000
_MOST_KEYS = 1000
_OTHER_HOSTS = "*"


class ClientLog:
    """Writes these lines. For the event loop's thread alone."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._counts: dict[tuple[str, str], _Count] = {}
        self._timer: asyncio.TimerHandle | None = None

    def write(
        self,
        logger: logging.Logger,
        level: int,
        message: str,
        values: Mapping[str, Any],
        *,
        kind: str,
        host: str,
        exc_info: BaseException | None = None,
    ) -> None:
        """Log a message with its values, unless this kind came from this host too often."""
        if not logger.isEnabledFor(level):
            return
        count = self._count(f"{message} {kind}", host)
        count.lines += 1
        if count.lines <= LINES_PER_MINUTE:
            logger.log(level, message, values, exc_info=exc_info)
            return
        # Stored as text: the traceback of an error would keep the whole request in memory.
        told = {name: _told(value) for name, value in values.items()}
        count.last = (logger, level, message, told)
        if self._timer is None:
            self._set_timer(count.ends_ms)

    def close(self) -> None:
        """Write what was counted and not told yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for count in self._counts.values():
            count.summarise()
        self._counts.clear()

    def _count(self, kind: str, host: str) -> _Count:
        now_ms = self._clock.now_ms()
        count = self._counts.get((kind, host))
        if count is not None and now_ms < count.ends_ms:
            return count
        self._end_minutes(now_ms)
        key = (kind, host if len(self._counts) < _MOST_KEYS else _OTHER_HOSTS)
        return self._counts.setdefault(key, _Count(now_ms + _MINUTE_MS))

    def _end_minutes(self, now_ms: int) -> None:
        """Summarise and forget the counts whose minute is over."""
        # They are in the order of their ends.
        while self._counts:
            key, count = next(iter(self._counts.items()))
            if now_ms < count.ends_ms:
                return
            del self._counts[key]
            count.summarise()

    def _set_timer(self, ends_ms: int) -> None:
        delay_s = max(0, ends_ms - self._clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._end_minutes(self._clock.now_ms())
        untold = [each.ends_ms for each in self._counts.values() if each.last is not None]
        if untold:
            self._set_timer(min(untold))


def _told(value: object) -> object:
    return value if isinstance(value, int | float | str) else str(value)


class _Count:
    """Lines of one kind from one host within a minute."""

    __slots__ = ("ends_ms", "last", "lines")

    def __init__(self, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.lines = 0
        self.last: tuple[logging.Logger, int, str, Mapping[str, Any]] | None = None
        """The newest line that was not written."""

    def summarise(self) -> None:
        if self.last is None:
            return
        logger, level, message, values = self.last
        counted = "%(more)d more of these in the last minute: " + message
        logger.log(level, counted, {**values, "more": self.lines - LINES_PER_MINUTE})
