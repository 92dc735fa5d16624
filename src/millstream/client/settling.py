"""Acknowledgements on their way out: gathered while the one before is answered, sent together.

What a program acknowledges takes effect whether it waits for that or not; who waits knows when
it is on the broker's disk. A thousand acknowledgements made one after the other are one request.

Invariant: acknowledgements leave in the order in which they were made.
After the loss of a connection: what was not answered is sent again over the next one. Doing so
twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from millstream.client.frames import Frame
from millstream.errors import MillstreamError

log = logging.getLogger("millstream.client")

# Fewer than the broker takes at once.
_REQUEST_IDS = 5000


class Settlement(NamedTuple):
    """What is to become of messages."""

    operation: str
    number_ms: int | None = None
    reason: str = ""

    def frame(self, ids: list[str]) -> Frame:
        frame: Frame = {"op": self.operation, "ids": ids}
        if self.number_ms is not None:
            frame["timeout_ms" if self.operation == "extend" else "delay_ms"] = self.number_ms
        if self.reason:
            frame["reason"] = self.reason
        return frame


ACK = Settlement("ack")


class Settled:
    """Can be awaited: returns when the broker has it on disk, or raises why not."""

    __slots__ = ("_gathering",)

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering

    def __await__(self) -> Generator[Any, None, None]:
        return self._gathering.wait().__await__()


class Gathering:
    """Acknowledgements that leave together."""

    def __init__(self) -> None:
        self.ids: dict[Settlement, list[str]] = {}
        self.settled = Settled(self)
        self._is_answered = asyncio.Event()
        self._error: MillstreamError | None = None

    @property
    def is_finished(self) -> bool:
        return self._is_answered.is_set()

    def finish(self, error: MillstreamError | None) -> None:
        self._error = error
        self._is_answered.set()

    async def wait(self) -> None:
        await self._is_answered.wait()
        if self._error is not None:
            raise self._error


class Settler:
    """Takes the acknowledgements of one subscription to the broker."""

    def __init__(self, ask: Callable[[Frame], Awaitable[Frame]]) -> None:
        """`ask` sends a frame until it is answered, over as many connections as that takes."""
        self._ask = ask
        self._next = Gathering()
        self._sending: Gathering | None = None
        self._has_work = asyncio.Event()

    def add(self, settlement: Settlement, message_id: str) -> Settled:
        gathering = self._next
        ids = gathering.ids.get(settlement)
        if ids is None:
            ids = gathering.ids[settlement] = []
            self._has_work.set()
        ids.append(message_id)
        return gathering.settled

    @property
    def latest(self) -> Settled:
        """All that was added so far."""
        if not self._next.ids and self._sending is not None:
            return self._sending.settled
        if not self._next.ids and not self._next.is_finished:
            nothing = Gathering()
            nothing.finish(None)
            return nothing.settled
        return self._next.settled

    def unanswered(self) -> set[str]:
        """The messages that were acknowledged, as far as that is not known to the broker."""
        gatherings = [self._next, *([self._sending] if self._sending else [])]
        return {each for gathering in gatherings for each in gathering.ids.get(ACK, ())}

    async def run(self) -> None:
        """Send what there is, again and again."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            gathering, self._next = self._next, Gathering()
            self._sending = gathering
            error = await self._send(gathering)
            if error is not None:
                # Those who made them need not wait for them, and so may never be told.
                log.warning("acknowledgements were not taken: %s", error)
            gathering.finish(error)
            self._sending = None

    async def flush(self) -> None:
        """Wait until all that was added is answered, well or not."""
        for gathering in (self._sending, self._next):
            if gathering is not None and gathering.ids:
                try:
                    await gathering.wait()
                except MillstreamError:
                    continue

    def fail(self, error: MillstreamError) -> None:
        """Nothing more will be answered."""
        for gathering in (self._sending, self._next):
            if gathering is not None:
                gathering.finish(error)

    async def _send(self, gathering: Gathering) -> MillstreamError | None:
        first: MillstreamError | None = None
        for settlement, ids in gathering.ids.items():
            for begin in range(0, len(ids), _REQUEST_IDS):
                try:
                    await self._ask(settlement.frame(ids[begin : begin + _REQUEST_IDS]))
                except MillstreamError as error:
                    first = first or error
        return first
