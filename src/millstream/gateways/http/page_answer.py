"""Messages of a partition as an answer, which is made while the client takes it.

So a client that does not read holds a piece of its answer in memory, not all of it; and others have
their turn between the pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import orjson
from starlette.responses import Response

from millstream.broker.partition import Partition
from millstream.broker.reading import Page
from millstream.errors import MillstreamError
from millstream.gateways.http import pages
from millstream.gateways.http.context import Context
from millstream.gateways.http.message_shapes import message_shape
from millstream.gateways.http.streamed_answer import StreamedAnswer
from millstream.records import Record

PIECE_BYTES = 256 << 10
_MEDIA_TYPE = "application/json"


def answer_of(
    context: Context,
    partition: Partition,
    page: Page,
    *,
    limit: int,
    max_bytes: int,
    encoding: str,
) -> Response:
    """A page, and what comes after it up to some limits."""
    pages.note_sent(partition, page.records)
    limit -= len(page.records)
    max_bytes -= pages.size_bytes(page)
    head = orjson.dumps({"topic": partition.topic.name, "partition": partition.number})
    begin = head[:-1] + b',"messages":[' + _texts(page.records, partition.number, encoding)
    # Where the first page has none, who reads on at `next_offset` finds the rest.
    if not page.records or not _goes_on(page, limit, max_bytes):
        return Response(begin + _end(page), media_type=_MEDIA_TYPE)
    pieces = _pieces(
        context, partition, page._replace(records=[]), [begin], limit, max_bytes, encoding
    )
    return StreamedAnswer(pieces, media_type=_MEDIA_TYPE)


async def _pieces(
    context: Context,
    partition: Partition,
    page: Page,
    made: list[bytes],
    limit: int,
    max_bytes: int,
    encoding: str,
) -> AsyncIterator[bytes]:
    """What was made of the first page, and then the rest. No piece is kept here."""
    yield made.pop()
    owner = object()
    while _goes_on(page, limit, max_bytes):
        # To write does not wait for a client that keeps up.
        await asyncio.sleep(0)
        try:
            context.check_there(partition.topic)
            page = pages.read(
                context,
                partition,
                page.next_offset,
                limit=limit,
                max_bytes=min(max_bytes, PIECE_BYTES),
                owner=owner,
            )
        except MillstreamError:
            # Who reads on at `next_offset` is told what is wrong there.
            break
        limit -= len(page.records)
        max_bytes -= max(pages.size_bytes(page), 1)
        pages.note_sent(partition, page.records)
        if page.records:
            made.append(b"," + _texts(page.records, partition.number, encoding))
        page = page._replace(records=[])
        if made:
            yield made.pop()
    yield _end(page)


def _goes_on(page: Page, limit: int, max_bytes: int) -> bool:
    return limit > 0 and max_bytes > 0 and page.next_offset < page.end_offset


def _texts(records: Iterable[Record], partition: int, encoding: str) -> bytes:
    """JSON of messages, with commas between them."""
    shapes = [message_shape(each, partition, encoding=encoding) for each in records]
    return orjson.dumps(shapes)[1:-1]


def _end(page: Page) -> bytes:
    rest = {
        "next_offset": page.next_offset,
        "start_offset": page.start_offset,
        "end_offset": page.end_offset,
    }
    return b"]," + orjson.dumps(rest)[1:]
