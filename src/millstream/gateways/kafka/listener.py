"""The door itself: listens, and looks after its connections.

Invariant: every open connection is in `connections`, and there are no more than `max.connections`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any

from millstream.broker.append_cycle import AppendCycle
from millstream.broker.broker import Broker
from millstream.broker.connections import ConnectionDescription
from millstream.broker.memory_budget import KAFKA_REQUESTS
from millstream.broker.topics import Topic, Topics
from millstream.gateways.kafka.admission import Admission
from millstream.gateways.kafka.connection import Connection
from millstream.gateways.kafka.handlers.fetch import Fetch
from millstream.gateways.kafka.handlers.produce import Producing
from millstream.gateways.kafka.metrics import figures
from millstream.gateways.receive_buffer import BufferPool, reserved_bytes
from millstream.protocol.messages.fetch import FetchRequest
from millstream.settings.domain import split_address
from millstream.settings.kafka import KafkaSettings

_log = logging.getLogger(__name__)

_BACKLOG = 4096
_TICK_MS = 500
_LOOK_MS = 5000
_FINISH_S = 2.0
_HANG_UP_S = 0.5
_STEP_S = 0.01


class Door:
    """Listens for Kafka clients."""

    def __init__(self, broker: Broker, settings: KafkaSettings) -> None:
        self.broker = broker
        self.settings = settings
        # Whatever is allowed to be sent must fit in, or it would wait for ever.
        largest_bytes = reserved_bytes(4 + settings.request_max_bytes)
        broker.memory.allow_for(largest_bytes)
        limit = settings.buffered_max_bytes
        self.pool = BufferPool(
            broker.memory,
            KAFKA_REQUESTS,
            limit_bytes=max(limit, largest_bytes) if limit >= 0 else None,
        )
        self.cycle = AppendCycle()
        self.admission = Admission()
        self.connections: set[Connection] = set()
        self._told = split_address(settings.advertised_listener)
        broker.topics.on_deleted.append(_wake)
        self.accepted = 0
        """How many connections there were since the start."""
        broker.connections.add("kafka", self.described)
        broker.metrics.add(partial(figures, self))
        self._server: asyncio.Server | None = None
        self._repacking = asyncio.Lock()

    async def open(self) -> str:
        """Begin to listen; returns the address as HOST:PORT. Raises OSError."""
        address = split_address(self.settings.listener)
        assert address is not None, "the settings are checked"
        host, port = address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.new_connection, host, port, backlog=_BACKLOG)
        bound = self._server.sockets[0].getsockname()
        return f"[{host}]:{bound[1]}" if ":" in host else f"{host}:{bound[1]}"

    def new_connection(self) -> Connection:
        return Connection(self)

    # What connections are made of: other doors put other classes in.
    new_producing: Callable[..., Producing] = staticmethod(Producing)
    new_fetch: Callable[[FetchRequest, int, int, Topics, int], Fetch] = staticmethod(Fetch)

    async def repack(self, work: Coroutine[Any, Any, None]) -> None:
        """Repack for one connection at a time: each may need much memory."""
        try:
            async with self._repacking:
                await work
        finally:
            work.close()

    def advertised(self, local: tuple[Any, ...]) -> tuple[str, int]:
        """Where a client is to connect that reached us at a local address: there, unless told."""
        return self._told or (str(local[0]), int(local[1]))

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
        """Look after idle connections, and those that keep others waiting, until cancelled."""
        for tick in count(1):
            await asyncio.sleep(_TICK_MS / 1000)
            now_ms = self.broker.clock.now_ms()
            if self.pool.is_tight:
                self.make_room(now_ms)
            if tick * _TICK_MS % _LOOK_MS == 0:
                self.look(now_ms)

    def make_room(self, now_ms: int) -> None:
        """End the slowest requests, until nobody waits for memory or none is slow."""
        hoarders = [
            (since_ms, connection)
            for connection in self.connections
            if (since_ms := connection.hoards_since_ms) is not None
            and now_ms - since_ms > self.settings.receive_max_ms
        ]
        for _, connection in sorted(hoarders, key=itemgetter(0)):
            if not self.pool.is_tight:
                return
            connection.give_way()

    def look(self, now_ms: int) -> None:
        """Hang up on the idle; let those that pause keep nothing."""
        for connection in list(self.connections):
            idle_ms = now_ms - connection.last_used_ms
            if idle_ms > self.settings.connection_max_idle_ms:
                connection.expire()
            elif idle_ms > _LOOK_MS:
                connection.rest()

    async def close(self) -> None:
        """Take no more requests, answer those that were begun, and hang up."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.finish()
        await _within(_FINISH_S, lambda: all(each.is_idle for each in self.connections))
        for connection in list(self.connections):
            connection.close()
        await _within(_HANG_UP_S, lambda: not self.connections)
        for connection in list(self.connections):
            connection.abort()


def _wake(topic: Topic) -> None:
    """Tell those who wait for more of a topic that none will come."""
    for partition in topic.partitions:
        partition.wake()


async def _within(seconds: float, is_done: Callable[[], bool]) -> None:
    """Return when something is done, or the time is over."""
    steps = round(seconds / _STEP_S)
    while steps and not is_done():
        await asyncio.sleep(_STEP_S)
        steps -= 1
