"""Server-sent events: a topic's messages as they come, for browsers and `curl`.

An event's id holds the place of its message, `PARTITION:OFFSET`, and after it those of the last
messages before it in the other partitions, if the topic has any. A browser sends the last one that
it has seen when it connects again, and so misses nothing.

    id: 0:7
    data: {"message_id": "0:7", "partition": 0, "offset": 7, "value": "hello", ...}

What was deleted before it could be sent is told by an event `skipped`, and an end by `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Path, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from millstream.broker.broker import Broker
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, MillstreamError, UnknownPartition
from millstream.gateways.http.context import Context, context_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.feed import Feed, Taken
from millstream.gateways.http.origins import is_whole, origin_of_text, positions_of
from millstream.gateways.http.pages import EARLIEST, LATEST
from millstream.gateways.http.parameters import StrictRoute
from millstream.gateways.http.problems import problem_of
from millstream.gateways.http.streamed_answer import StreamedAnswer
from millstream.gateways.http.tail import tails_of
from millstream.settings.topics import MAX_PARTITIONS

router = APIRouter(tags=["streams"], route_class=StrictRoute)

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 15.0
_HEARTBEAT = b": still here\n\n"
_QUEUE_BYTES = 1 << 20
_POSITION_BYTES = 12
"""About what an event id holds for each partition."""
_EXAMPLE = 'id: 0:7\ndata: {"message_id": "0:7", "partition": 0, "offset": 7, "value": "hello"}\n\n'
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events, without end.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    **problems(404, 416),
}


@router.get(
    "/topics/{topic}/stream",
    response_class=StreamingResponse,
    responses=_ANSWERS,
    summary="Follow a topic by server-sent events",
)
async def stream(
    request: Request,
    topic: Annotated[str, Path(min_length=1)],
    partition: Annotated[
        int | None, Query(ge=0, le=MAX_PARTITIONS, description="One; all if left out.")
    ] = None,
    origin: Annotated[
        str | None,
        Query(
            alias="from",
            description="earliest, latest or an offset. If left out: latest, or with a group "
            "earliest. Where the group has committed, that counts.",
        ),
    ] = None,
    group: Annotated[
        str | None, Query(min_length=1, description="Begin where this group has committed.")
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(description="Go on after this event; it comes before `from` and `group`."),
    ] = None,
) -> StreamingResponse:
    """Committed messages as they come, each as an event; a comment where none comes for 15 s.

    A client that reads slowly is held back, and nothing is left out for it.
    """
    context, tails = context_of(request), tails_of(request)
    found = tails.broker.topics.get(topic)
    positions = await _positions(
        tails.broker, found, partition=partition, origin=origin, group=group, last=last_event_id
    )
    feed = Feed(tails, found, positions)
    return _Events(feed, context)


class _Events(StreamedAnswer):
    """A response that releases its feed, however it ends."""

    media_type = MEDIA_TYPE

    def __init__(self, feed: Feed, context: Context) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_events(feed, context), headers=headers)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.close()
            if self.connection is not None:
                self.connection.is_endless = False

    async def stream_response(self, send: Send) -> None:
        if self.connection is not None:
            self.connection.is_endless = True
        await super().stream_response(send)


async def _positions(
    broker: Broker,
    topic: Topic,
    *,
    partition: int | None,
    origin: str | None,
    group: str | None,
    last: str | None,
) -> dict[int, int]:
    count = len(topic.partitions)
    if partition is not None and partition >= count:
        raise UnknownPartition(topic.name, partition, count=count)
    numbers = range(count) if partition is None else [partition]
    asked = origin_of_text(origin or (EARLIEST if group else LATEST))
    if last:
        after = _after(last)
        known = {str(number): after[number] for number in numbers if number in after}
        # A partition that is new since then has nothing that the client has seen.
        return await positions_of(broker, topic, numbers, origin={"positions": known})
    return await positions_of(broker, topic, numbers, origin=asked, group=group)


def _after(event_id: str) -> dict[int, int]:
    """By partition, the offset after that of the last message. Raises InvalidRequest."""
    found = {}
    for place in event_id.split(","):
        number, _, offset = place.partition(":")
        try:
            found[int(number)] = int(offset) + 1
        except ValueError:
            found[-1] = -1
    if not all(map(is_whole, [*found, *found.values()])):
        raise InvalidRequest(f"Last-Event-ID is {event_id!r}: expected PARTITION:OFFSET")
    return found


async def _events(
    feed: Feed, context: Context, *, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[bytes]:
    """What to write, until the topic is gone or the broker stops."""
    limit = context.settings.stream_queue_messages
    closing = asyncio.get_running_loop().create_task(context.closing.wait())
    closing.add_done_callback(lambda _: feed.wake())
    try:
        # Tells the client at once that it is heard.
        yield _HEARTBEAT
        while not context.closing.is_set():
            try:
                chunks = _chunks(feed, limit)
            except MillstreamError as error:
                yield b"event: error\ndata: %b\n\n" % orjson.dumps(problem_of(error))
                return
            if chunks:
                # Not kept here until the client has read it.
                yield chunks.pop()
                await asyncio.sleep(0)
                continue
            try:
                async with asyncio.timeout(heartbeat_s):
                    await feed.ready()
            except TimeoutError:
                yield _HEARTBEAT
    finally:
        closing.cancel()


def _chunks(feed: Feed, limit: int) -> list[bytes]:
    """The next events in one chunk, or none when there is nothing to send."""
    before = feed.positions
    # Each event carries the positions of all partitions.
    most = max(_QUEUE_BYTES // (_POSITION_BYTES * len(before)), 1) if before else limit
    taken = feed.take(limit=min(limit, most), max_bytes=_QUEUE_BYTES)
    return [] if taken is None else [_written(taken, before)]


def _written(taken: Taken, positions: dict[int, int]) -> bytes:
    """Events of what was taken; `positions` are those before it."""
    lines: list[str] = []
    for skipped in taken.skipped:
        positions[skipped.partition] = skipped.to_offset
        told = {
            "partition": skipped.partition,
            "from": skipped.from_offset,
            "to": skipped.to_offset,
        }
        lines.append(f"event: skipped\ndata: {orjson.dumps(told).decode()}\n\n")
    for page, start, end in taken.stretches:
        number = page.partition
        others = [
            f",{other}:{position - 1}" for other, position in positions.items() if other != number
        ]
        tail = "".join(others)
        for at in range(start, end):
            offset = page.records[at].offset
            lines.append(f"id: {number}:{offset}{tail}\ndata: {page.text(at)}\n\n")
        positions[number] = page.records[end - 1].offset + 1
    return "".join(lines).encode()
