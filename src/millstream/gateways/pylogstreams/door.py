"""The door itself: listens, and looks after its connections.

Invariant: every open connection is in `connections`, and there are no more than `max.connections`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

from millstream.broker.broker import Broker
from millstream.broker.connections import ConnectionDescription
from millstream.broker.memory_budget import PYLOGSTREAMS_FRAMES
from millstream.broker.topics import Topic
from millstream.gateways.pylogstreams.connection import Connection
from millstream.gateways.pylogstreams.delivery import Subscribers
from millstream.gateways.pylogstreams.frames import CHECKSUM_BYTES, LENGTH_BYTES
from millstream.gateways.pylogstreams.metrics import figures
from millstream.gateways.pylogstreams.pages import Pages
from millstream.gateways.pylogstreams.sessions import Sessions
from millstream.gateways.receive_buffer import BufferPool, reserved_bytes
from millstream.settings.domain import split_address
from millstream.settings.pylogstreams import PyLogStreamsSettings

_BACKLOG = 4096
_FINISH_S = 2.0
_HANG_UP_S = 0.5
_STEP_S = 0.01
# A silent client is found at most this part of a heartbeat late.
_LOOKS_PER_HEARTBEAT = 4
# Positions are renewed this often while they would otherwise be kept.
_RENEWALS_PER_RETENTION = 4


class Door:
    """Listens for PyLogStreams clients."""

    def __init__(
        self, broker: Broker, settings: PyLogStreamsSettings, *, new_client_id: Callable[[], str]
    ) -> None:
        """`new_client_id` makes an id that nobody had before, without spaces."""
        self.broker = broker
        self.settings = settings
        self.new_client_id = new_client_id
        # Whatever is allowed to be sent must fit in, or it would wait for ever.
        largest_bytes = reserved_bytes(LENGTH_BYTES + settings.frame_max_bytes + CHECKSUM_BYTES)
        broker.memory.allow_for(largest_bytes)
        self.pool = BufferPool(broker.memory, PYLOGSTREAMS_FRAMES)
        self.sessions = Sessions(broker.groups, broker.client_log)
        self.pages = Pages(broker.reader, message_max_bytes=settings.frame_max_bytes)
        self.subscribers: Subscribers = {}
        self.connections: set[Connection] = set()
        self.accepted = 0
        """How many connections there were since the start."""
        self.commands: Counter[str] = Counter()
        """How many commands there were, but for PUB."""
        broker.metrics.add(partial(figures, self))
        self._server: asyncio.Server | None = None
        broker.connections.add("pylogstreams", self.described)
        broker.topics.on_changed.append(self._topic_changed)
        broker.topics.on_deleted.append(self._topic_deleted)

    async def open(self) -> str:
        """Begin to listen; returns the address as HOST:PORT. Raises OSError."""
        address = split_address(self.settings.listener)
        assert address is not None, "the settings are checked"
        host, port = address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=_BACKLOG
        )
        bound = self._server.sockets[0].getsockname()
        return f"[{host}]:{bound[1]}" if ":" in host else f"{host}:{bound[1]}"

    def described(self) -> list[ConnectionDescription]:
        return [each.described() for each in self.connections]

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more connection."""
        if len(self.connections) >= self.settings.max_connections:
            return False
        self.connections.add(connection)
        self.accepted += 1
        return True

    async def run(self) -> None:
        """Drop silent clients and commit positions, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.sessions.run())
            tasks.create_task(self._renew())
            await self._drop_silent()

    async def _drop_silent(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.settings.heartbeat_ms / 1000 / _LOOKS_PER_HEARTBEAT)
            allowed_s = self.settings.heartbeat_ms / 1000 * self.settings.missed_heartbeats
            now_s = loop.time()
            for connection in list(self.connections):
                silent_s = now_s - connection.heard_s
                if silent_s > allowed_s:
                    connection.expire(silent_s)

    async def _renew(self) -> None:
        while True:
            retention_s = self.broker.settings.groups.offsets_retention_minutes * 60
            await asyncio.sleep(retention_s / _RENEWALS_PER_RETENTION)
            self.sessions.renew()

    async def close(self) -> None:
        """Take no more frames, store those that were taken, commit all positions, and hang up.

        Call while positions can still be committed.
        """
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.finish()
        await _within(_FINISH_S, lambda: all(each.is_idle for each in self.connections))
        await self.sessions.commit()
        for connection in list(self.connections):
            connection.hang_up()
        await _within(_HANG_UP_S, lambda: not self.connections)
        for connection in list(self.connections):
            connection.abort()

    def _topic_changed(self, topic: Topic) -> None:
        for delivery in tuple(self.subscribers.get(topic.name, ())):
            delivery.topic_changed(topic)

    def _topic_deleted(self, topic: Topic) -> None:
        for delivery in tuple(self.subscribers.get(topic.name, ())):
            delivery.topic_deleted(topic)
        for partition in topic.partitions:
            self.pages.forget(partition)
        self.sessions.forget_topic(topic.name)


async def _within(seconds: float, is_done: Callable[[], bool]) -> None:
    """Return when something is done, or the time is over."""
    steps = round(seconds / _STEP_S)
    while steps and not is_done():
        await asyncio.sleep(_STEP_S)
        steps -= 1
