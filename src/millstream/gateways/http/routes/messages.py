"""Messages of a topic: send them, and read them by offset, id or time.

`GET /topics/{topic}/messages` with a `consumer_id` is Mini Pulsar's: see `pulsar`.
"""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, NotFound, OffsetOutOfRange, UnknownPartition
from millstream.gateways.http import page_answer, pages
from millstream.gateways.http.context import broker_of, context_of
from millstream.gateways.http.documentation import (
    answer,
    path_parameter,
    problems,
    query_parameter,
)
from millstream.gateways.http.message_ids import place_of_text
from millstream.gateways.http.message_shapes import TEXT, message_shape
from millstream.gateways.http.models import LONG_MAX, Encoding, MessageId
from millstream.gateways.http.parameters import StrictRoute
from millstream.gateways.http.produce import BYTES, FORM, JSON, LINES, produce
from millstream.gateways.http.routes import pulsar
from millstream.settings.topics import MAX_PARTITIONS

router = APIRouter(tags=["messages"], route_class=StrictRoute)

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
DEFAULT_BYTES = 1 << 20

_ONE = {"message_id": 7, "partition": 0, "offset": 7, "timestamp": 1700000000000}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": LONG_MAX}
SENDING: dict[str, Any] = {
    "parameters": [
        path_parameter("topic", "The topic, created now if there is none."),
        query_parameter(
            "encoding", "Of value and key in JSON.", type="string", enum=["text", "base64"]
        ),
        query_parameter("key", "Of a raw body; or the header Millstream-Key.", type="string"),
        query_parameter(
            "header",
            "Of a raw body, NAME:VALUE; or the headers Millstream-Header-NAME.",
            type="array",
            items={"type": "string", "pattern": "^[^:]+:"},
        ),
        query_parameter("partition", "Of a raw body.", **{**_WHOLE, "maximum": MAX_PARTITIONS}),
        query_parameter("timestamp", "Of a raw body.", **_WHOLE),
        query_parameter("deliver_at", "Of a raw body.", **_WHOLE),
        query_parameter("deliver_after", "Of a raw body.", **_WHOLE),
    ],
    "requestBody": {
        "required": True,
        "description": f"JSON objects are taken as {FORM} too, as `curl -d` calls them.",
        "content": {
            JSON: {
                "schema": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/NewMessage"},
                        {"$ref": "#/components/schemas/NewMessages"},
                        {"type": "array", "items": {"$ref": "#/components/schemas/NewMessage"}},
                    ]
                },
                "examples": {
                    "one": {"value": {"value": "hello", "key": "en"}},
                    "Mini Pulsar": {"value": {"data": "hello"}},
                    "FastQueue2": {"value": {"message": "hello"}},
                    "many": {"value": [{"value": "one"}, {"value": "two"}]},
                },
            },
            LINES[0]: {
                "schema": {"type": "string"},
                "example": '{"value":"one"}\n{"value":"two"}\n',
            },
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in BYTES},
        },
    },
}
STORED = answer("Stored", "Stored, and on disk. For many: StoredMany, for lines: StoredStream.")
STORED[200]["content"][JSON] = {
    "schema": {
        "anyOf": [
            {"$ref": f"#/components/schemas/{name}"}
            for name in ("Stored", "StoredMany", "StoredStream")
        ]
    },
    "example": _ONE,
}
STORED[207] = {
    "description": "Some of many were stored; in place of each other one is its error.",
    "content": {JSON: {"schema": {"type": "object"}}},
}


@router.post(
    "/topics/{topic}/messages",
    summary="Send one message, or many",
    responses={**STORED, **problems(400, 404, 413, 415, 507)},
    openapi_extra=SENDING,
)
async def send(request: Request) -> Response:
    return await produce(request, request.path_params["topic"])


@router.get(
    "/topics/{topic}/messages",
    summary="Read messages by offset or time, or the next one of a consumer",
    responses={
        200: {
            "description": "Messages; with a consumer_id, the one at its cursor.",
            "content": {
                JSON: {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/Messages"},
                            {"$ref": "#/components/schemas/Received"},
                        ]
                    }
                }
            },
        },
        **problems(404, 416),
    },
)
async def read(
    request: Request,
    topic: str,
    *,
    consumer_id: Annotated[
        str | None, Query(description="Whose cursor to read at: a consumer group.")
    ] = None,
    offset: Annotated[
        str | None,
        Query(
            description="A number, earliest or latest.",
            pattern="^([0-9]{1,19}|earliest|latest)$",
        ),
    ] = None,
    timestamp: Annotated[
        int | None,
        Query(ge=0, le=LONG_MAX, description="Read from this time on: ms since the epoch."),
    ] = None,
    partition: Annotated[
        int | None,
        Query(ge=0, le=MAX_PARTITIONS, description="Needed where the topic has several."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    max_bytes: Annotated[int, Query(ge=1, le=LONG_MAX)] = DEFAULT_BYTES,
    wait_ms: Annotated[
        int, Query(ge=0, le=LONG_MAX, description="How long to wait where there is nothing.")
    ] = 0,
    encoding: Encoding = TEXT,
) -> Response:
    context = context_of(request)
    wait_ms = min(wait_ms, context.settings.long_poll_max_ms)
    if consumer_id is not None:
        return await pulsar.receive(request, topic, consumer_id, wait_ms=wait_ms, encoding=encoding)
    if (offset is None) == (timestamp is None):
        raise InvalidRequest("say where to read: consumer_id, or one of offset and timestamp")
    found = _partition(broker_of(request).topics.get(topic), partition)
    begin = (
        pages.offset_at(found, timestamp)
        if timestamp is not None
        else pages.start_of(found, offset or "")
    )
    max_bytes = min(max_bytes, context.settings.response_max_bytes)
    page = await pages.read_or_wait(
        context,
        request,
        found,
        begin,
        limit=limit,
        max_bytes=min(max_bytes, page_answer.PIECE_BYTES),
        wait_ms=wait_ms,
    )
    return page_answer.answer_of(
        context, found, page, limit=limit, max_bytes=max_bytes, encoding=encoding
    )


@router.get(
    "/topics/{topic}/messages/{message_id}",
    summary="Read one message by its id",
    responses={**answer("Message", "The message."), **problems(404)},
)
async def read_one(
    request: Request,
    topic: str,
    message_id: Annotated[MessageId, Path()],
    encoding: Encoding = TEXT,
) -> Response:
    context = context_of(request)
    number, offset = place_of_text(message_id)
    partition = context.broker.topics.partition(topic, number)
    missing = NotFound(kind="message", name=f"{topic}/{message_id}")
    try:
        page = pages.read(context, partition, offset, limit=1, max_bytes=DEFAULT_BYTES)
    except OffsetOutOfRange:
        raise missing from None
    if not page.records or page.records[0].offset != offset:
        raise missing
    pages.note_sent(partition, page.records)
    shape = message_shape(page.records[0], number, encoding=encoding)
    return Response(orjson.dumps(shape), media_type=JSON)


def _partition(topic: Topic, number: int | None) -> Partition:
    if number is None:
        if len(topic.partitions) > 1:
            raise InvalidRequest(
                f"topic {topic.name!r} has {len(topic.partitions)} partitions: say which one"
            )
        number = 0
    if number >= len(topic.partitions):
        raise UnknownPartition(topic.name, number, count=len(topic.partitions))
    return topic.partitions[number]
