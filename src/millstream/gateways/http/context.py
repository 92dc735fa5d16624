"""What every route knows: the broker, once it has started, and whether the door is closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable
from functools import partial
from typing import Any, Final

from starlette.requests import HTTPConnection, Request

from millstream.broker.broker import Broker
from millstream.broker.memory_budget import Stalling
from millstream.broker.topics import Topic
from millstream.errors import Unavailable, UnknownTopic
from millstream.gateways.http.metrics import figures
from millstream.settings.http import HttpSettings
from millstream.telemetry.client_log import ClientLog
from millstream.telemetry.latencies import Latencies

CONNECTION: Final = "millstream.connection"
"""The connection over which a request came, in its scope."""
FREE_BYTES = 64 << 10
"""About what a connection holds anyway: smaller bodies and messages are not charged."""


class Context:
    """Shared by all requests."""

    def __init__(self, settings: HttpSettings) -> None:
        self.settings = settings
        self.closing = asyncio.Event()
        """Set when whoever waits or streams is to come to an end."""
        self.latencies = Latencies()
        """The broker's, once it has started."""
        self.client_log = ClientLog()
        """The broker's, once it has started."""
        self.open_connections: Collection[object] = ()
        self.accepted_connections = 0
        self.pending_requests = 0
        self._broker: Broker | None = None
        # Of topics that somebody waits for.
        self._ends: dict[Topic, set[asyncio.Future[None]]] = {}

    @property
    def broker(self) -> Broker:
        """Raises Unavailable while the broker recovers."""
        if self._broker is None:
            raise Unavailable("the broker is starting: try again in a moment")
        return self._broker

    @property
    def has_started(self) -> bool:
        return self._broker is not None

    def stall(self, client: Stalling, unsent_bytes: int) -> None:
        """A client leaves so much of its answers unread."""
        if self._broker is not None:
            self._broker.memory.stall(client, unsent_bytes)

    def resume(self, client: Stalling) -> None:
        """It has taken them, or is gone. Safe to call twice."""
        if self._broker is not None:
            self._broker.memory.resume(client)

    def serve(self, broker: Broker) -> None:
        self._broker = broker
        self.latencies = broker.metrics.requests
        broker.memory.allow_for(self.settings.request_max_bytes)
        self.client_log.close()
        self.client_log = broker.client_log
        broker.metrics.add(partial(figures, self))
        broker.topics.on_deleted.append(self._topic_deleted)

    def check_there(self, topic: Topic) -> None:
        """Raises UnknownTopic for one that was deleted, whatever has its name now."""
        if self.broker.topics.get(topic.name) is not topic:
            raise UnknownTopic(topic.name)

    async def deleted(self, topic: Topic) -> None:
        """Return when a topic is deleted. To be used within `first_of`."""
        self.check_there(topic)
        end = asyncio.get_running_loop().create_future()
        ends = self._ends.setdefault(topic, set())
        ends.add(end)
        try:
            await end
        finally:
            ends.discard(end)
            if not ends:
                self._ends.pop(topic, None)

    def _topic_deleted(self, topic: Topic) -> None:
        for end in self._ends.pop(topic, ()):
            if not end.done():
                end.set_result(None)

    async def first_of(
        self, waits: Iterable[Awaitable[Any]], *, request: Request | None = None
    ) -> bool:
        """Return when one of some waits is over; the others end with it.

        False if it is not worth going on: the door closes, or the client has hung up.
        """
        loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(each, loop=loop) for each in waits]
        ends: list[asyncio.Task[Any]] = [loop.create_task(self.closing.wait())]
        if request is not None:
            ends.append(loop.create_task(_hung_up(request)))
        try:
            await asyncio.wait([*tasks, *ends], return_when=asyncio.FIRST_COMPLETED)
            return not any(each.done() for each in ends)
        finally:
            for each in [*tasks, *ends]:
                each.cancel()
            await asyncio.gather(*tasks, *ends, return_exceptions=True)


def context_of(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


def broker_of(connection: HTTPConnection) -> Broker:
    """Raises Unavailable while the broker recovers."""
    return context_of(connection).broker


async def _hung_up(request: Request) -> None:
    """Only for a request whose body nobody wants to read any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
