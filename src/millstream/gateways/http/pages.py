"""Reading some messages of a partition, and waiting for the first where there are none yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from starlette.requests import Request

from millstream.broker.partition import Partition
from millstream.broker.reading import Page
from millstream.errors import CorruptData, InvalidRequest, OffsetOutOfRange, RecordTooLarge
from millstream.gateways.http.context import Context
from millstream.records import Record
from millstream.records.record import content_bytes

EARLIEST = "earliest"
LATEST = "latest"


def start_of(partition: Partition, place: str) -> int:
    """The offset that `earliest`, `latest` or a number stands for. Raises InvalidRequest."""
    log = partition.log
    if place == EARLIEST:
        return log.start_offset
    if place == LATEST:
        return log.last_stable_offset
    if place.isascii() and place.isdigit() and len(place) < 20:
        offset = int(place)
        if offset > log.end_offset:
            raise OffsetOutOfRange(
                offset=offset, start_offset=log.start_offset, end_offset=log.end_offset
            )
        return offset
    raise InvalidRequest(f"offset is {place!r}: expected a number from 0 on, earliest or latest")


def offset_at(partition: Partition, timestamp_ms: int) -> int:
    """The first offset at or after a time; where there is none yet, the end."""
    log = partition.log
    found = log.offset_for_time(timestamp_ms)
    return log.last_stable_offset if found is None else found.offset


def read(
    context: Context,
    partition: Partition,
    offset: int,
    *,
    limit: int,
    max_bytes: int,
    owner: object = None,
) -> Page:
    """Up to `limit` messages and about `max_bytes`. Raises what Reader.read does."""
    read_page = partial(
        context.broker.reader.read,
        partition,
        max_record_bytes=context.settings.response_max_bytes,
        owner=owner,
    )
    page = read_page(offset, limit=limit, max_bytes=max_bytes)
    records = page.records
    room_bytes = max_bytes - size_bytes(page)
    # A page may end early: at the end of a segment, or where a transaction was aborted.
    while len(records) < limit and page.next_offset < page.end_offset and room_bytes > 0:
        try:
            page = read_page(page.next_offset, limit=limit - len(records), max_bytes=room_bytes)
        except (CorruptData, RecordTooLarge):
            if not records:
                raise
            # Whoever reads on at `next_offset` is told.
            break
        records += page.records
        room_bytes -= max(size_bytes(page), 1)
    return page._replace(records=records)


async def read_or_wait(
    context: Context,
    request: Request,
    partition: Partition,
    offset: int,
    *,
    limit: int,
    max_bytes: int,
    wait_ms: int,
) -> Page:
    """The same; while there is nothing, wait for it up to a time. Raises UnknownTopic too."""
    topic = partition.topic
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_ms / 1000
    page = read(context, partition, offset, limit=limit, max_bytes=max_bytes)
    while not page.records and (left_ms := round((deadline_s - loop.time()) * 1000)) > 0:
        wait = context.broker.reader.wait(partition, page.next_offset, timeout_ms=left_ms)
        is_wanted = await context.first_of([wait, context.deleted(topic)], request=request)
        context.check_there(topic)
        page = read(context, partition, page.next_offset, limit=limit, max_bytes=max_bytes)
        if not is_wanted:
            break
    return page


def note_sent(partition: Partition, records: Iterable[Record]) -> None:
    """Records of a partition go into an answer: count them."""
    sizes = [content_bytes(each.key, each.value, each.headers) for each in records]
    partition.topic.traffic.sent(len(sizes), sum(sizes))


def size_bytes(page: Page) -> int:
    return sum(len(each.value or b"") + len(each.key or b"") + 64 for each in page.records)
