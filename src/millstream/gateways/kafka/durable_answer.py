"""Answers to produce requests with acks=all, which wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from millstream.broker.append_cycle import Appended
from millstream.errors import MillstreamError, StorageFailure, TimedOut
from millstream.gateways.kafka.answers import Place
from millstream.gateways.kafka.produce_request import Entry, ParsedRequest, encode_all
from millstream.storage.flusher import Flusher
from millstream.storage.partition_log import PartitionLog


class _Wait(NamedTuple):
    """What must be durable, and for whose sake."""

    log: PartitionLog
    offset: int
    appended: tuple[Appended, ...]


class DurableAnswer:
    """Requests with acks=all: answered together, when all that they stored is on disk."""

    __slots__ = ("_answered", "_entries", "_place", "_timer", "_waiting")

    def __init__(self, entries: list[Entry], place: Place, answered: Callable[[], None]) -> None:
        """`answered` is called when they were."""
        self._entries = entries
        self._answered = answered
        self._place = place
        # What is not known to be on disk yet.
        self._waiting: set[_Wait] = set()
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, flusher: Flusher, transactions: PartitionLog) -> None:
        """Answer when the flusher is done with it, or has failed to be in time.

        What is part of a transaction waits for the log of those, too.
        """
        stored = tuple(self._stored())
        waits = [_Wait(one.partition.log, one.partition.log.end_offset, (one,)) for one in stored]
        if stored and (settled_at := self._settled_at()):
            waits.append(_Wait(transactions, settled_at, stored))
        self._waiting.update(waits)
        for each in waits:
            flusher.when_durable(each.log, each.offset, partial(self._settle, each))
        if not self._waiting:
            self._answer()
            return
        timeout_ms = max(entry[0].timeout_ms for entry in self._entries)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout_ms / 1000, self._expire, timeout_ms)

    def _stored(self) -> set[Appended]:
        found: set[Appended] = set()
        for request, _, stored in self._entries:
            if stored is not None:
                found.add(stored[0])
            elif isinstance(request, ParsedRequest):
                found.update(request.appended())
        return {each for each in found if any(isinstance(o, int) for o in each.outcomes)}

    def _settled_at(self) -> int:
        requests = (request for request, _, _ in self._entries)
        return max((r.settled_at for r in requests if isinstance(r, ParsedRequest)), default=0)

    def _settle(self, wait: _Wait, failure: StorageFailure | None) -> None:
        if wait not in self._waiting:
            return  # it was too late
        self._waiting.discard(wait)
        if failure is not None:
            _fail(wait, failure)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._answer()

    def _expire(self, timeout_ms: int) -> None:
        for wait in self._waiting:
            _fail(wait, TimedOut(operation="the sync", timeout_ms=timeout_ms))
        self._waiting.clear()
        self._answer()

    def _answer(self) -> None:
        # Durable before acknowledged: every sync that this answer rests on has ended.
        self._place.fill([encode_all(self._entries)])
        self._answered()


def _fail(wait: _Wait, failure: MillstreamError) -> None:
    for appended in wait.appended:
        appended.fail(failure)
