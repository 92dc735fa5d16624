"""Mini Pulsar's routes: a consumer receives the message at its cursor, again until it acks it.

`POST /topics/{topic}/messages` is in `messages`, and so is the route that `receive` answers.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, NotFound
from millstream.gateways.http import cursors, pages
from millstream.gateways.http.context import Context, broker_of, context_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.message_ids import place_of_text
from millstream.gateways.http.message_shapes import message_shape
from millstream.gateways.http.models import Done, MessageId
from millstream.gateways.http.parameters import StrictRoute
from millstream.gateways.http.problems import plain_problem
from millstream.records import Record

router = APIRouter(tags=["Mini Pulsar"], route_class=StrictRoute)

_Unread = tuple[Partition, int]
"""Where a consumer has yet to read."""


async def receive(
    request: Request, topic: str, consumer_id: str, *, wait_ms: int, encoding: str
) -> Response:
    """The oldest message that the consumer has not acknowledged."""
    if not consumer_id:
        raise InvalidRequest("consumer_id is empty: expected a name")
    context = context_of(request)
    found = context.broker.topics.get(topic)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_ms / 1000
    while True:
        places = await cursors.positions(context.broker, consumer_id, found)
        unread = [(found.partitions[number], offset) for number, offset in places.items()]
        oldest = _oldest(context, unread)
        if oldest is not None:
            number, record = oldest
            pages.note_sent(found.partitions[number], [record])
            shape = message_shape(record, number, encoding=encoding)
            shape["data"] = shape["value"]
            return Response(orjson.dumps(shape), media_type="application/json")
        left_ms = round((deadline_s - loop.time()) * 1000)
        if left_ms <= 0 or not await _more(context, request, found, left_ms):
            return plain_problem(404, "No new messages")
        context.check_there(found)


@router.post(
    "/topics/{topic}/messages/{message_id}/ack",
    summary="Move a consumer's cursor past a message",
    responses=problems(404, 409, 507),
)
async def acknowledge(
    request: Request,
    topic: str,
    message_id: Annotated[MessageId, Path()],
    consumer_id: Annotated[str, Query(min_length=1)],
) -> Done:
    """What lies before the message counts as acknowledged too. Once more changes nothing."""
    broker = broker_of(request)
    found = broker.topics.get(topic)
    number, offset = place_of_text(message_id)
    if not _exists(found, number, offset):
        raise NotFound(kind="message", name=f"{topic}/{message_id}")
    await _move_up(broker, consumer_id, found, number, offset + 1)
    return Done()


async def _move_up(broker: Broker, group: str, topic: Topic, number: int, offset: int) -> None:
    committed = await broker.groups.fetch_offsets(group, [(topic.name, number)])
    known = committed.get((topic.name, number))
    if known is None or known.offset < offset:
        await cursors.move(broker, group, topic.name, {number: offset})


def _exists(topic: Topic, number: int, offset: int) -> bool:
    """Whether there is such a message, or once was."""
    return (
        number < len(topic.partitions) and offset < topic.partitions[number].log.last_stable_offset
    )


def _oldest(context: Context, unread: list[_Unread]) -> tuple[int, Record] | None:
    """By its time; in topics of one partition that is the next one."""
    found = []
    for partition, offset in unread:
        record = _next_record(context, partition, offset)
        if record is not None:
            found.append((partition.number, record))
    return min(found, key=lambda each: (each[1].timestamp_ms, each[0]), default=None)


def _next_record(context: Context, partition: Partition, offset: int) -> Record | None:
    while offset < partition.log.last_stable_offset:
        page = context.broker.reader.read(partition, offset, limit=1)
        if page.records:
            return page.records[0]
        offset = page.next_offset
    return None


async def _more(context: Context, request: Request, topic: Topic, timeout_ms: int) -> bool:
    waits = [
        context.broker.reader.wait(
            partition, partition.log.last_stable_offset, timeout_ms=timeout_ms
        )
        for partition in topic.partitions
        if partition.failure is None
    ]
    return await context.first_of([*waits, context.deleted(topic)], request=request)
