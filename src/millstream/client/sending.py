"""Messages on their way out: gathered for one turn of the event loop, sent in one request a topic.

So a thousand tasks that each send one message cost little more than one that sends a thousand.

Invariant: messages to one topic leave in the order in which they were sent. No more than a set
number of them are unanswered; who sends more waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from millstream.client.frames import Frame, message_fields, places_of
from millstream.client.link import Link
from millstream.client.messages import Outgoing, Sent
from millstream.client.room import Room
from millstream.errors import MalformedMessage, MillstreamError, PartlySent

_REQUEST_MESSAGES = 1000
_REQUEST_BYTES = 1 << 20


class _Waiting(NamedTuple):
    message: Outgoing
    sent: asyncio.Future[Sent]


class Sender:
    """Sends messages over a link."""

    def __init__(self, link: Link, *, max_unanswered: int, retries: int) -> None:
        self._link = link
        self._retries = retries
        self._room = Room(max_unanswered)
        self._gathered: dict[str, list[_Waiting]] = {}

    async def send(self, topic: str, message: Outgoing) -> Sent:
        """Return when it is on the broker's disk."""
        await self._room.take()
        try:
            return await self._begin(topic, message)
        finally:
            self._room.give()

    async def send_many(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent]:
        """Return when all are. Raises PartlySent if some were refused, or the error of all."""
        asked: list[tuple[int, asyncio.Future[Frame]]] = []
        results: list[Sent | MillstreamError] = []
        try:
            for run in runs(messages):
                count = len(run)
                # Requests before this one are answered while it waits for room.
                await self._room.take(count)
                try:
                    future = self._ask(topic, run)
                except BaseException:
                    self._room.give(count)
                    raise
                future.add_done_callback(partial(self._leave_room, count))
                asked.append((count, future))
            if asked:
                await asyncio.wait([future for _, future in asked])
            for count, future in asked:
                results += _results(topic, count, future)
        except BaseException:
            for _, future in asked:
                future.cancel()
            raise
        return _all_sent(topic, results)

    def _leave_room(self, count: int, _: asyncio.Future[Frame]) -> None:
        self._room.give(count)

    def _begin(self, topic: str, message: Outgoing) -> asyncio.Future[Sent]:
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._flush)
        waiting = _Waiting(message, loop.create_future())
        self._gathered.setdefault(topic, []).append(waiting)
        return waiting.sent

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for topic, waiting in gathered.items():
            # Who has been cancelled meanwhile has sent nothing.
            alive = [each for each in waiting if not each.sent.done()]
            begin = 0
            for run in runs(each.message for each in alive):
                self._send_run(topic, run, alive[begin : begin + len(run)])
                begin += len(run)

    def _send_run(self, topic: str, run: list[Outgoing], waiting: Sequence[_Waiting]) -> None:
        try:
            future = self._ask(topic, run)
        except MillstreamError as error:
            _fail(waiting, error)
            return

        def settle(future: asyncio.Future[Frame]) -> None:
            results = _results(topic, len(waiting), future)
            for each, place in zip(waiting, results, strict=True):
                if isinstance(place, MillstreamError):
                    _fail([each], place)
                elif not each.sent.done():
                    each.sent.set_result(place)

        future.add_done_callback(settle)

    def _ask(self, topic: str, run: Sequence[Outgoing]) -> asyncio.Future[Frame]:
        messages = [message_fields(each) for each in run]
        return self._link.ask(
            {"op": "send", "topic": topic, "messages": messages}, repeats=self._retries
        )


def runs(messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Cut messages into pieces that each make a fair request, in order."""
    run: list[Outgoing] = []
    size_bytes = 0
    for message in messages:
        message_bytes = message.size_bytes
        is_full = len(run) == _REQUEST_MESSAGES or size_bytes + message_bytes > _REQUEST_BYTES
        if run and is_full:
            yield run
            run, size_bytes = [], 0
        run.append(message)
        size_bytes += message_bytes
    if run:
        yield run


def _results(
    topic: str, count: int, answered: asyncio.Future[Frame]
) -> list[Sent | MillstreamError]:
    """What became of each of so many messages."""
    try:
        return places_of(topic, answered.result(), count)
    except MillstreamError as error:
        return [error] * count
    except (KeyError, TypeError, ValueError) as error:
        return [MalformedMessage(f"the broker's answer to a send is none: {error!r}")] * count


def _all_sent(topic: str, results: list[Sent | MillstreamError]) -> list[Sent]:
    refused = [each for each in results if isinstance(each, MillstreamError)]
    if not refused:
        return [each for each in results if isinstance(each, Sent)]
    if len(refused) == len(results):
        raise refused[0]
    raise PartlySent(topic=topic, results=tuple(results))


def _fail(waiting: Iterable[_Waiting], error: MillstreamError) -> None:
    for each in waiting:
        if not each.sent.done():
            each.sent.set_exception(error)
