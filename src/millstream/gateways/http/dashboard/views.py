"""What the pages of the dashboard show: for each the rows of its channel.

Rows are values that compare: one that is as it was before is not sent again. So times are told as
moments, never as spans, and rounded where they move all the time.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice
from typing import Any

from millstream.broker.broker import Broker
from millstream.errors import InvalidRequest, NotFound
from millstream.gateways.http.context import Context
from millstream.gateways.http.dashboard.channels import Rows, Source
from millstream.gateways.http.dashboard.pulse import Pulse
from millstream.gateways.http.dashboard.topic_figures import TopicFigures
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.routes import groups, queues, topics
from millstream.gateways.http.routes.health import damage_of, troubles_of
from millstream.groups.classic_description import GroupListing

PULSE = "pulse"
_PULSE_S = 1.0
_TABLE_S = 2.0
_ONE_TURN = 200
_BUSIEST = 6
_MOST_CONNECTIONS = 1000
_MOMENT_MS = 5000
_LONGEST_NAME = 200

Make = Callable[[], Awaitable[Rows]]


class Views:
    """Makes the sources of channels, for a broker that has started."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker: Broker = context.broker
        self._figures = TopicFigures(self._broker.topics)
        self._pulse = Pulse(self._broker)
        self._groups: dict[str, list[Any]] = {}
        self._next_group = 0
        self._plain: dict[str, Make] = {
            "overview": self._overview,
            "topics": self._topics,
            "groups": self._group_list,
            "queues": self._queues,
            "pipelines": self._pipelines,
            "connections": self._connections,
        }

    def pulse(self) -> Source:
        return Source(PULSE, self._beat, _PULSE_S)

    def source(self, view: str, name: str) -> Source:
        """Raises InvalidRequest for a view that there is not."""
        if view in self._plain:
            return Source(view, self._plain[view], _TABLE_S)
        if view == "topic":
            return Source(view, lambda: self._topic(name), _TABLE_S)
        if view == "group":
            return Source(view, lambda: self._group(name), _TABLE_S)
        expected = ", ".join([*self._plain, "topic", "group"])
        raise InvalidRequest(f"view is {excerpt(view)}: expected {expected}")

    async def _beat(self) -> Rows:
        return self._pulse.beat()

    async def _overview(self) -> Rows:
        broker = self._broker
        found = await self._figures.look(no_older_than_s=_TABLE_S / 2)
        shown = [each for each in found.values() if not each.is_internal]
        by_rate = sorted(found.items(), key=lambda item: (-item[1].rate, -item[1].end_offsets))
        damage = damage_of(self._context)
        doors: dict[str, int] = {}
        for door, _ in broker.connections.all():
            doors[door] = doors.get(door, 0) + 1
        return {
            "topics": len(shown),
            "partitions": sum(each.partitions for each in shown),
            "messages": sum(each.messages for each in shown),
            "size_bytes": sum(each.size_bytes for each in found.values()),
            "disk": await _disk(broker.topics.data_path),
            "busiest": [
                [name, each.rate, each.messages, each.size_bytes]
                for name, each in by_rate
                if not each.is_internal
            ][:_BUSIEST],
            "groups": len(broker.groups.list()),
            "queues": len(broker.subscriptions.list()),
            "connections": doors,
            "troubles": [
                *troubles_of(self._context),
                *damage.unresolved,
                *damage.repaired,
            ],
        }

    async def _topics(self) -> Rows:
        found = await self._figures.look(no_older_than_s=_TABLE_S / 2)
        return {
            name: [
                each.partitions,
                each.messages,
                each.size_bytes,
                each.rate,
                each.stopped,
                int(each.is_internal),
            ]
            for name, each in found.items()
        }

    async def _topic(self, name: str) -> Rows:
        told = topics.described(self._broker.topics.get(name)).model_dump()
        partitions = told.pop("details")
        return {**told, **{f"partition/{each['partition']}": each for each in partitions}}

    async def _group_list(self) -> Rows:
        """Groups are looked into in turn, some at a time, where there are many."""
        listings = sorted(self._broker.groups.list())
        begin = self._next_group if self._next_group < len(listings) else 0
        self._next_group = begin + _ONE_TURN
        for each in listings[begin : begin + _ONE_TURN]:
            # One may be gone by the time that it is looked into.
            with suppress(NotFound):
                self._groups[each.group_id] = await self._group_row(each)
        rows = {}
        for each in listings:
            known = self._groups.get(each.group_id, [None, None, [], 0])
            rows[each.group_id] = [str(each.state), each.group_type, *known]
        self._groups = {name: row[2:] for name, row in rows.items()}
        return rows

    async def _group_row(self, listing: GroupListing) -> list[Any]:
        """Its members, its lag, some topics that it reads, and partitions that it never read."""
        group = listing.group_id
        if listing.group_type == "consumer":
            members = len((await self._broker.groups.consumer_describe(group)).members)
        else:
            members = len(self._broker.groups.describe(group).members)
        offsets = await groups.offsets_of(self._broker, group)
        read = sorted({each.topic for each in offsets})
        never_read = sum(each.never_read and bool(each.lag) for each in offsets)
        lag = sum(each.lag or 0 for each in offsets)
        return [members, lag, read[:3] + read[3:4], never_read]

    async def _group(self, name: str) -> Rows:
        told = (await groups.described(self._broker, name)).model_dump()
        offsets = told.pop("offsets")
        return {**told, **{f"offset/{each['topic']}/{each['partition']}": each for each in offsets}}

    async def _queues(self) -> Rows:
        return {
            f"{each.topic}/{each.name}": queues.shape_of(each).model_dump()
            for each in self._broker.subscriptions.list()
        }

    async def _pipelines(self) -> Rows:
        return {each["pipeline"]: each for each in await self._broker.pipelines.all()}

    async def _connections(self) -> Rows:
        found = islice(self._broker.connections.all(), _MOST_CONNECTIONS)
        await asyncio.sleep(0)
        return {
            f"{door}/{each.number}": [
                door,
                each.peer,
                each.client[:_LONGEST_NAME],
                each.since_ms,
                each.last_used_ms // _MOMENT_MS * _MOMENT_MS,
                each.use,
            ]
            for door, each in found
        }


async def _disk(path: str) -> list[int] | None:
    """How large it is, and how much of it is free; None where data lies on none, but in memory."""
    try:
        # In a thread: a disk that hangs must not hold up the clients.
        found = await asyncio.to_thread(shutil.disk_usage, path)
    except OSError:
        return None
    return [found.total, found.free]
