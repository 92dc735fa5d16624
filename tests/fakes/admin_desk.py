"""A fake broker whose Kafka handlers are asked directly, in the bytes of a version."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from millstream.gateways.kafka.context import Context
from millstream.protocol.codec import decode, encode
from millstream.protocol.notation import Struct
from tests.fakes.fake_broker import FakeBroker


def versions_of(handler: ModuleType) -> range:
    oldest, newest = handler.VERSIONS
    return range(oldest, newest + 1)


class AdminDesk(FakeBroker):
    """A broker, and a client beside it."""

    _is_started = False

    async def started(self) -> None:
        if not self._is_started:
            self._is_started = True
            await self.start()

    def ask(self, handler: ModuleType, request: Struct, version: int | None = None) -> Any:
        """The response of a handler, in its newest version unless another one is given."""

        async def exchange() -> Any:
            await self.started()
            return await self.handle(handler, request, version)

        return asyncio.run(exchange())

    def context(self, version: int) -> Context:
        return Context(
            broker=self.broker,
            version=version,
            client_id="client",
            client_host="/127.0.0.1",
            connection=1,
            advertised=("broker.test", 9092),
        )

    async def handle(self, handler: ModuleType, request: Struct, version: int | None = None) -> Any:
        chosen = handler.VERSIONS[1] if version is None else version
        received = decode(handler.REQUEST, chosen, encode(request, chosen))
        response = await handler.handle(received, self.context(chosen))
        return decode(type(response), chosen, encode(response, chosen))
