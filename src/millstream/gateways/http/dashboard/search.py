"""`/api/search`: messages of a topic that hold some text, a slice of the scan for each request.

An answer says where to go on, how much was looked at, and how much there is; who wants the rest
asks again, and who stops asking has stopped the scan. Partitions come one after the other. Where
messages are large, an answer has fewer than were asked for.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.message_search import IsAbandoned, Room, Searches, Wanted, size_of
from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import UnknownPartition
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.message_shapes import message_shape
from millstream.gateways.http.models import LONG_MAX
from millstream.gateways.http.pages import offset_at
from millstream.gateways.http.parameters import StrictRoute
from millstream.records import Record
from millstream.settings.topics import MAX_PARTITIONS

router = APIRouter(include_in_schema=False, route_class=StrictRoute)

_SLICE_S = 0.4
_MOST = 200
_LONGEST = 1000
_MOST_BYTES = 4 << 20

Number = Annotated[int | None, Query(ge=0, le=LONG_MAX)]


@router.get("/api/search")
async def find(
    request: Request,
    topic: str,
    *,
    text: Annotated[str, Query(max_length=_LONGEST)] = "",
    key: Annotated[str, Query(max_length=_LONGEST)] = "",
    partition: Annotated[int | None, Query(ge=0, le=MAX_PARTITIONS)] = None,
    timestamp: Annotated[
        int | None, Query(ge=0, le=LONG_MAX, description="Only from this time on.")
    ] = None,
    order: Literal["newest", "oldest"] = "newest",
    limit: Annotated[int, Query(ge=1, le=_MOST)] = 50,
    at_partition: Annotated[int | None, Query(ge=0, le=MAX_PARTITIONS)] = None,
    at_offset: Number = None,
) -> Response:
    """Begins anew without `at_partition` and `at_offset`, which are the answer's `next`."""
    broker = broker_of(request)
    partitions = _partitions(broker.topics.get(topic), partition)
    walk = _Walk(partitions, timestamp, is_backward=order == "newest")
    scan = _Scan(
        walk=walk,
        wanted=Wanted(text.encode(), key.encode()),
        limit=limit,
        timestamp=timestamp,
        searches=searches_of(request),
        is_abandoned=request.is_disconnected,
    )
    number, offset = walk.place(at_partition, at_offset)
    told = await scan.run(partitions, number, offset)
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(told), media_type="application/json", headers=headers)


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One slice: it ends when it has found enough, or its time is over."""

    walk: _Walk
    wanted: Wanted
    limit: int
    timestamp: int | None
    searches: Searches
    is_abandoned: IsAbandoned
    size_bytes: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def run(self, partitions: list[Partition], number: int, offset: int) -> dict[str, Any]:
        walk, loop = self.walk, asyncio.get_running_loop()
        deadline_s = loop.time() + _SLICE_S
        while True:
            found = await self.searches.search(
                partitions[number],
                self.wanted,
                offset,
                room=self.room,
                within_s=deadline_s - loop.time(),
                is_backward=walk.is_backward,
                is_abandoned=self.is_abandoned,
            )
            self._take(found.records, partitions[number].number)
            scanned = walk.scanned(number, found.offset)
            place = walk.next(number, found.offset, is_over=found.is_over)
            if place is None or self.room.is_full or loop.time() >= deadline_s:
                break
            number, offset = place
        return {
            "messages": self.messages,
            "next": place and walk.told(place),
            "scanned": scanned,
            "total": walk.total,
            "ends": {str(each.number): each.log.last_stable_offset for each in partitions},
        }

    @property
    def room(self) -> Room:
        return Room(self.limit - len(self.messages), _MOST_BYTES - self.size_bytes)

    def _take(self, records: list[Record], number: int) -> None:
        for each in records:
            if self.timestamp is None or each.timestamp_ms >= self.timestamp:
                self.messages.append(message_shape(each, number))
                self.size_bytes += size_of(each)


class _Walk:
    """The way through partitions, one after the other."""

    def __init__(
        self, partitions: list[Partition], timestamp: int | None, *, is_backward: bool
    ) -> None:
        self.is_backward = is_backward
        self._ranges = [
            (
                each.log.start_offset if timestamp is None else offset_at(each, timestamp),
                each.log.last_stable_offset,
            )
            for each in partitions
        ]
        self._numbers = [each.number for each in partitions]
        self.total = sum(end - start for start, end in self._ranges)

    def place(self, partition: int | None, offset: int | None) -> tuple[int, int]:
        """Which of the partitions comes next, and from where on."""
        number = self._numbers.index(partition) if partition in self._numbers else 0
        return number, self._first(number) if offset is None else offset

    def next(self, number: int, offset: int, *, is_over: bool) -> tuple[int, int] | None:
        """Where to go on; None at the end of the last partition."""
        if is_over or (self.is_backward and offset <= self._ranges[number][0]):
            number += 1
            if number == len(self._ranges):
                return None
            offset = self._first(number)
        return number, offset

    def told(self, place: tuple[int, int]) -> dict[str, int]:
        return {"partition": self._numbers[place[0]], "offset": place[1]}

    def scanned(self, number: int, offset: int) -> int:
        start, end = self._ranges[number]
        offset = min(max(offset, start), end)
        before = sum(end - start for start, end in self._ranges[:number])
        return before + (end - offset if self.is_backward else offset - start)

    def _first(self, number: int) -> int:
        start, end = self._ranges[number]
        return end if self.is_backward else start


def searches_of(request: Request) -> Searches:
    """The application's."""
    state = request.app.state
    if not hasattr(state, "searches"):
        limit_bytes = broker_of(request).settings.storage.max_decompressed_bytes
        state.searches = Searches(max_unpacked_bytes=limit_bytes)
    searches: Searches = state.searches
    return searches


def _partitions(topic: Topic, partition: int | None) -> list[Partition]:
    if partition is None:
        return list(topic.partitions)
    if partition >= len(topic.partitions):
        raise UnknownPartition(topic.name, partition, count=len(topic.partitions))
    return [topic.partitions[partition]]
