"""`/api/search`: messages of a topic that hold some text, a slice of the scan for each request.

An answer says where to go on, how much was looked at, and how much there is; who wants the rest
asks again, and who stops asking has stopped the scan. Messages of all partitions come in the order
of time, as far as each partition has them in it. Where messages are large, an answer has fewer than
were asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.message_search import IsAbandoned, Pace, Room, Searches, Wanted, size_of
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
from millstream.storage.batch_walk import split_batches

router = APIRouter(include_in_schema=False, route_class=StrictRoute)

_SLICE_S = 0.4
_MOST = 200
_LONGEST = 1000
_MOST_BYTES = 4 << 20

_PLACES = r"^[0-9]{1,10}:[0-9]{1,18}(,[0-9]{1,10}:[0-9]{1,18})*$"


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
    at: Annotated[str | None, Query(pattern=_PLACES)] = None,
) -> Response:
    """Begins anew without `at`: the answer's `next`, as PARTITION:OFFSET with commas."""
    broker = broker_of(request)
    places = None if at is None else dict(_place(each) for each in at.split(","))
    is_backward = order == "newest"
    ways = [
        _Way(each, timestamp, is_backward=is_backward)
        for each in _partitions(broker.topics.get(topic), partition)
    ]
    if places is not None:
        for way in ways:
            way.go_on(places.get(way.partition.number))
    scan = _Scan(
        ways=ways,
        wanted=Wanted(text.encode(), key.encode()),
        limit=limit,
        timestamp=timestamp,
        is_backward=is_backward,
        searches=searches_of(request),
        is_abandoned=request.is_disconnected,
    )
    told = await scan.run()
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(told), media_type="application/json", headers=headers)


@dataclass(slots=True, kw_only=True)
class _Scan:
    """One slice: it ends when it has found enough, or its time is over."""

    ways: list[_Way]
    wanted: Wanted
    limit: int
    timestamp: int | None
    is_backward: bool
    searches: Searches
    is_abandoned: IsAbandoned
    size_bytes: int = 0
    messages: list[dict[str, Any]] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _SLICE_S
        choose = max if self.is_backward else min
        left = [way for way in self.ways if not way.is_done]
        while left and len(self.messages) < self.limit:
            # Whoever has come least far in time goes on, so all come in the order of time.
            way = choose(left, key=lambda each: each.time_ms)
            if way.found:
                self._take(way)
            elif loop.time() >= deadline_s or (self.messages and self.size_bytes >= _MOST_BYTES):
                break
            else:
                await self._look(way, left, deadline_s - loop.time())
            if way.is_done:
                left.remove(way)
        for way in left:
            way.put_back()
        return {
            "messages": self.messages,
            "next": {str(way.partition.number): way.offset for way in left} or None,
            "scanned": sum(way.scanned for way in self.ways),
            "total": sum(way.total for way in self.ways),
            "ends": {
                str(way.partition.number): way.partition.log.last_stable_offset for way in self.ways
            },
        }

    async def _look(self, way: _Way, left: list[_Way], within_s: float) -> None:
        room = Room(self.limit - len(self.messages), max(_MOST_BYTES - self.size_bytes, 1))
        slice_ = await self.searches.search(
            way.partition,
            self.wanted,
            way.offset,
            room=room,
            # One step where others may come first.
            within_s=within_s if len(left) == 1 else 0,
            is_backward=self.is_backward,
            is_abandoned=self.is_abandoned,
            pace=way.pace,
        )
        records = [
            each
            for each in slice_.records
            if self.timestamp is None or each.timestamp_ms >= self.timestamp
        ]
        self.size_bytes += sum(map(size_of, records))
        way.came_to(slice_.offset, records, is_over=slice_.is_over)

    def _take(self, way: _Way) -> None:
        self.messages.append(message_shape(way.found.popleft(), way.partition.number))


class _Way:
    """The way through one partition."""

    def __init__(self, partition: Partition, timestamp: int | None, *, is_backward: bool) -> None:
        log = partition.log
        self.partition = partition
        self.found: deque[Record] = deque()
        """What was found and is not told yet, in the order of the way."""
        self.pace = Pace()
        self._is_backward = is_backward
        self._start = log.start_offset if timestamp is None else offset_at(partition, timestamp)
        self._end = log.last_stable_offset
        self.offset = self._end if is_backward else self._start
        self.total = max(self._end - self._start, 0)
        self._is_over = not self.total
        self._time_ms: int | None = None

    @property
    def is_done(self) -> bool:
        return self._is_over and not self.found

    @property
    def scanned(self) -> int:
        at = min(max(self.offset, self._start), self._end)
        return self._end - at if self._is_backward else at - self._start

    @property
    def time_ms(self) -> int:
        """Of what comes next on the way."""
        if self.found:
            return self.found[0].timestamp_ms
        if self._time_ms is None:
            self._time_ms = self._look_up_time()
        return self._time_ms

    def go_on(self, offset: int | None) -> None:
        """From where an answer said; None: it was done."""
        if offset is None:
            self._is_over = True
            self.offset = self._start if self._is_backward else self._end
        else:
            self.came_to(offset, (), is_over=False)

    def came_to(self, offset: int, found: Sequence[Record], *, is_over: bool) -> None:
        self.offset = offset
        self.found.extend(found)
        self._time_ms = None
        is_at_end = offset <= self._start if self._is_backward else offset >= self._end
        self._is_over = is_over or is_at_end

    def put_back(self) -> None:
        """Go on with what was found and not told."""
        if self.found:
            first = self.found[0].offset
            self.offset = first + 1 if self._is_backward else first
            self.found.clear()

    def _look_up_time(self) -> int:
        """That of the batch that comes next: no message of it comes before this on the way."""
        log = self.partition.log
        offset = max(self.offset - 1 if self._is_backward else self.offset, log.start_offset)
        for header, _ in split_batches(log.read(offset, 1)):
            return header.max_timestamp_ms if self._is_backward else header.base_timestamp_ms
        return 0


def _place(text: str) -> tuple[int, int]:
    number, _, offset = text.partition(":")
    return int(number), int(offset)


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
