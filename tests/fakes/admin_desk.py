"""Asks handlers of the Kafka door, in the bytes of a version, about topics on a disk in memory."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any, cast

from millstream.broker.broker import Broker
from millstream.broker.groups import GroupCoordinator
from millstream.broker.pipelines import Pipelines
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.reading import Reader
from millstream.broker.sending import Sender
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.transactions import TransactionCoordinator
from millstream.gateways.kafka.context import Context
from millstream.protocol.codec import decode, encode
from millstream.protocol.notation import Struct
from millstream.settings.loader import Settings
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.topic_host import TopicHost


def versions_of(handler: ModuleType) -> range:
    oldest, newest = handler.VERSIONS
    return range(oldest, newest + 1)


class AdminDesk:
    """A broker with topics and no groups, and a client beside it."""

    def __init__(self, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.disk = FakeFilesystem()
        self.host = TopicHost(self.disk, settings=settings.topics, defaults=settings.log)
        self._is_started = False
        self.broker = Broker(
            topics=self.host.topics,
            groups=cast(GroupCoordinator, None),
            transactions=cast(TransactionCoordinator, None),
            subscriptions=cast(Subscriptions, None),
            pipelines=cast(Pipelines, None),
            producer_ids=ProducerIds(self.host.topics.allocate_producer_ids),
            sender=Sender(self.host.topics, self.host.flusher, clock=self.host.clock),
            reader=Reader(max_unpacked_bytes=1 << 20),
            flusher=self.host.flusher,
            clock=self.host.clock,
            settings=settings,
        )

    async def started(self) -> None:
        if not self._is_started:
            self._is_started = True
            await self.host.start()

    def ask(self, handler: ModuleType, request: Struct, version: int | None = None) -> Any:
        """The answer of a handler, in its newest version unless one is said."""

        async def exchange() -> Any:
            await self.started()
            chosen = handler.VERSIONS[1] if version is None else version
            return await self.handle(handler, request, chosen)

        return asyncio.run(exchange())

    async def handle(self, handler: ModuleType, request: Struct, version: int) -> Any:
        context = Context(
            broker=self.broker,
            version=version,
            client_id="test",
            client_host="/127.0.0.1",
            connection=1,
            advertised=("broker.test", 9092),
        )
        received = decode(handler.REQUEST, version, encode(request, version))
        answer = await handler.handle(received, context)
        return decode(type(answer), version, encode(answer, version))
