"""Answers to produce requests with acks=all, which wait for the disk."""

from __future__ import annotations

import asyncio
from functools import partial

from millstream.broker.append_cycle import Appended
from millstream.errors import StorageFailure, TimedOut
from millstream.gateways.kafka.answers import Place
from millstream.gateways.kafka.produce_request import Entry, ParsedRequest, encode_all
from millstream.storage.flusher import Flusher


class DurableAnswer:
    """Requests with acks=all: answered together, when all that they stored is on disk."""

    __slots__ = ("_entries", "_place", "_timer", "_waiting")

    def __init__(self, entries: list[Entry], place: Place) -> None:
        self._entries = entries
        self._place = place
        # What is not known to be on disk yet.
        self._waiting: set[Appended] = set()
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, flusher: Flusher) -> None:
        """Answer when the flusher is done with it, or has failed to be in time."""
        self._waiting = self._stored()
        for appended in list(self._waiting):
            log = appended.partition.log
            flusher.when_durable(log, log.end_offset, partial(self._settle, appended))
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

    def _settle(self, appended: Appended, failure: StorageFailure | None) -> None:
        if appended not in self._waiting:
            return  # it was too late
        if failure is not None:
            appended.fail(failure)
        self._waiting.discard(appended)
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._answer()

    def _expire(self, timeout_ms: int) -> None:
        for appended in self._waiting:
            appended.fail(TimedOut(operation="the sync", timeout_ms=timeout_ms))
        self._waiting.clear()
        self._answer()

    def _answer(self) -> None:
        # Durable before acknowledged: every sync that this answer rests on has ended.
        self._place.fill([encode_all(self._entries)])
