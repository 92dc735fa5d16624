"""Whether a log can still be used: open, closed, or stopped by a disk that broke a promise.

Invariant: a log that has stopped does not go on, whatever its disk says later: after a failed sync
the kernel may have dropped the very pages it could not write, so that trying again would succeed
and mean nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from millstream.errors import MillstreamError, StorageFailure, Unavailable
from millstream.storage.filesystem import Filesystem, passing_trouble
from millstream.storage.recovery import mark_sync_failed

_log = logging.getLogger(__name__)


class LogHealth:
    """Says what may be done to a log."""

    def __init__(
        self, filesystem: Filesystem, directory: str, *, name: str, on_stop: Callable[[], None]
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._name = name
        self._on_stop = on_stop
        self.failure: StorageFailure | None = None
        self.is_closed = False

    def raise_if_stopped(self) -> None:
        if self.failure is not None:
            # Without the traces of those who met it before: they would keep what they had in hand.
            raise self.failure.with_traceback(None)
        if self.is_closed:
            raise StorageFailure(path=self._directory, operation="use", reason="the log is closed")

    def failed(self, error: OSError | MillstreamError, operation: str) -> MillstreamError:
        """The error to give for a write that failed. What may pass is no reason to stop."""
        if isinstance(error, MillstreamError):
            return error
        return passing_trouble(error, self._directory) or self.stop(error, operation)

    def stop(self, error: OSError | Unavailable, operation: str) -> StorageFailure:
        """Take no more writes, for good; returns what to raise."""
        if self.failure is None:
            self.failure = StorageFailure(
                path=self._directory, operation=operation, reason=str(error)
            )
            _log.error("%(log)s: stopped: %(error)s", {"log": self._name, "error": self.failure})
            mark_sync_failed(self._filesystem, self._directory)
            self._on_stop()
        return self.failure
