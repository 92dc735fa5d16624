"""One partition of a topic as the broker has it: its log, or why there is none to be had."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from millstream.errors import MillstreamError, StorageFailure, Unavailable
from millstream.storage.local_log import LocalLog

if TYPE_CHECKING:
    from millstream.broker.topics import Topic


_log = logging.getLogger(__name__)


class Waiter(Protocol):
    """Who waits for more of a partition."""

    def wake(self) -> None: ...


class Partition:
    """A place to append to and read from."""

    __slots__ = ("_log", "failure", "is_refusing", "number", "topic", "waiters")

    def __init__(
        self,
        topic: Topic,
        number: int,
        log: LocalLog | None,
        failure: MillstreamError | None = None,
    ) -> None:
        """Without a log, `failure` says why."""
        self.topic = topic
        self.number = number
        self._log = log
        self.failure = None if log else _as_storage_failure(topic.name, number, failure)
        self.is_refusing = False
        """Whether the last append failed for no fault of its sender."""
        # Fetches that wait for more of it, first come first; each can be taken out at once.
        self.waiters: dict[Waiter, None] = {}

    @property
    def log(self) -> LocalLog:
        """Raises StorageFailure when the log could not be opened."""
        if self._log is None:
            assert self.failure is not None
            raise self.failure
        return self._log

    def note_refusal(self, outcome: int | MillstreamError) -> None:
        """Tell whoever reads the log once when the log begins to refuse records, and when it ends.

        Clients try again in silence until they give up.
        """
        if isinstance(outcome, Unavailable | StorageFailure) == self.is_refusing:
            return
        self.is_refusing = not self.is_refusing
        if self.is_refusing:
            _log.error("%s/%d takes no records: %s", self.topic.name, self.number, outcome)
        else:
            _log.info("%s/%d takes records again", self.topic.name, self.number)

    def wake(self) -> None:
        """Tell those who wait that there is more, or that they wait in vain."""
        for waiter in self.waiters:
            waiter.wake()


def _as_storage_failure(topic: str, number: int, failure: MillstreamError | None) -> StorageFailure:
    if isinstance(failure, StorageFailure):
        return failure
    reason = str(failure) if failure else "it is missing"
    return StorageFailure(path=f"{topic}/{number}", operation="open", reason=reason)
