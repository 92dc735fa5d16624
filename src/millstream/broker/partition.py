"""One partition of a topic as the broker has it: its log, or why there is none to be had."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from millstream.errors import CorruptData, MillstreamError, StorageFailure, Unavailable
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
            raise self.failure.with_traceback(None)
        return self._log

    def append(self, batches: Sequence[bytearray | memoryview]) -> list[int | MillstreamError]:
        """Store what a client sent, and count it; one outcome for each batch.

        What a producer repeats is not stored, nor counted, again.
        """
        log = self.log
        offset, size_bytes = log.end_offset, log.appended_bytes
        outcomes = log.append(batches)
        # New batches have no gaps: they take as many offsets as they hold messages.
        messages, size_bytes = log.end_offset - offset, log.appended_bytes - size_bytes
        traffic = self.topic.traffic
        for one in (traffic, traffic.whole):
            one.messages_in += messages
            one.bytes_in += size_bytes
        return outcomes

    def note_refusal(self, outcome: int | MillstreamError) -> None:
        """Tell whoever reads the log once when the log begins to refuse records, and when it ends.

        Clients try again in silence until they give up.
        """
        if isinstance(outcome, Unavailable | StorageFailure) == self.is_refusing:
            return
        self.is_refusing = not self.is_refusing
        if self.is_refusing:
            _log.error(
                "%(topic)s/%(partition)d takes no records: %(error)s",
                {"topic": self.topic.name, "partition": self.number, "error": outcome},
            )
        else:
            _log.info(
                "%(topic)s/%(partition)d takes records again",
                {"topic": self.topic.name, "partition": self.number},
            )

    def note_damage(self, fault: CorruptData) -> None:
        """Prove once more what was found damaged when it was decoded, so that the broker's log,
        health and metrics name its file.
        """
        with suppress(CorruptData):
            self.log.recheck(fault.offset)

    def wake(self) -> None:
        """Tell those who wait that there is more, or that they wait in vain."""
        for waiter in self.waiters:
            waiter.wake()


def _as_storage_failure(topic: str, number: int, failure: MillstreamError | None) -> StorageFailure:
    if isinstance(failure, StorageFailure):
        return failure
    reason = "its files are damaged, see the broker's log" if failure else "it is missing"
    return StorageFailure(path=f"{topic}/{number}", operation="open", reason=reason)
