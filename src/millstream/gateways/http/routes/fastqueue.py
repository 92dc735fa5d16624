"""FastQueue2's own routes: a topic takes a message and gives the one at an offset.

Without an offset, `GET /topics/{topic}` describes the topic. What its README has besides is in
`messages`, `topics` and `health`.
"""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.errors import NotFound, OffsetOutOfRange
from millstream.gateways.http import pages
from millstream.gateways.http.context import context_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.message_shapes import TEXT, message_shape
from millstream.gateways.http.models import LONG_MAX, Encoding
from millstream.gateways.http.parameters import StrictRoute
from millstream.gateways.http.produce import JSON, produce
from millstream.gateways.http.routes.messages import DEFAULT_BYTES, SENDING, STORED
from millstream.gateways.http.routes.topics import described
from millstream.settings.topics import MAX_PARTITIONS

router = APIRouter(tags=["FastQueue2"], route_class=StrictRoute)


@router.post(
    "/topics/{topic}",
    summary="Send a message",
    responses={**STORED, **problems(400, 404, 413, 415, 507)},
    openapi_extra=SENDING,
)
async def send(request: Request) -> Response:
    """The same as `POST /topics/{topic}/messages`; a new topic has one partition.

    So offsets are what FastQueue2's clients take them for: 0, 1, 2.
    """
    return await produce(request, request.path_params["topic"], new_partitions=1)


@router.get(
    "/topics/{topic}",
    summary="Describe a topic, or read the message at an offset",
    responses={
        200: {
            "description": "The topic; with an offset, the message there.",
            "content": {
                JSON: {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/TopicDescription"},
                            {"$ref": "#/components/schemas/ReadMessage"},
                        ]
                    }
                }
            },
        },
        **problems(404),
    },
)
async def read(
    request: Request,
    topic: str,
    *,
    offset: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    partition: Annotated[int, Query(ge=0, le=MAX_PARTITIONS)] = 0,
    encoding: Encoding = TEXT,
) -> Response:
    context = context_of(request)
    topics = context.broker.topics
    if offset is None:
        return Response(described(topics.get(topic)).model_dump_json(), media_type=JSON)
    found = topics.partition(topic, partition)
    missing = NotFound(kind="message at offset", name=f"{topic}/{partition}/{offset}")
    try:
        page = pages.read(context, found, offset, limit=1, max_bytes=DEFAULT_BYTES)
    except OffsetOutOfRange:
        raise missing from None
    if not page.records or page.records[0].offset != offset:
        raise missing
    pages.note_sent(found, page.records)
    shape = message_shape(page.records[0], partition, encoding=encoding)
    shape["message"] = shape["value"]
    return Response(orjson.dumps(shape), media_type=JSON)
