"""The same broker for `async with`: it never runs on the loop of the test.

It has a thread, or a process, of its own, as `Broker` does. A test that blocks its loop, or a
client that does, so cannot stop the broker that it waits for; and the broker's clock can be moved,
which needs an event loop of its own. What takes long is awaited here; faults and the clock answer
at once, and are used as they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Self

from millstream.testing.broker import Broker, Clock, Data, Headers
from millstream.testing.controls import Message
from millstream.testing.faults import PATIENCE_S, Faults


class AsyncBroker:
    """A broker for the time of an `async with` block."""

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        isolated: bool = False,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """As `Broker`."""
        self._broker = Broker(directory=directory, isolated=isolated, settings=settings)

    @classmethod
    def of(cls, broker: Broker) -> Self:
        """A broker that runs already, for tests that await. Whoever made it stops it."""
        found = cls()
        found._broker = broker
        return found

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._broker.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._broker.stop)

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for Kafka clients."""
        return self._broker.bootstrap_servers

    @property
    def http_url(self) -> str:
        """Where the REST API, the streams and the dashboard are."""
        return self._broker.http_url

    @property
    def faults(self) -> Faults:
        """To wait for one to be met: `await asyncio.to_thread(fault.wait)`."""
        return self._broker.faults

    @property
    def clock(self) -> Clock:
        return self._broker.clock

    async def restart(self) -> None:
        """As `Broker.restart`."""
        await asyncio.to_thread(self._broker.restart)

    async def kill(self) -> None:
        """As `Broker.kill`."""
        await asyncio.to_thread(self._broker.kill)

    async def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, object] | None = None
    ) -> None:
        """As `Broker.create_topic`."""
        await asyncio.to_thread(
            self._broker.create_topic, name, partitions=partitions, config=config
        )

    async def topics(self) -> list[str]:
        """As `Broker.topics`."""
        return await asyncio.to_thread(self._broker.topics)

    async def produce(
        self,
        topic: str,
        value: Data | None,
        *,
        key: Data | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int]:
        """As `Broker.produce`."""
        return await asyncio.to_thread(
            self._broker.produce,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )

    async def messages(
        self, topic: str, *, at_least: int = 0, timeout_s: float = PATIENCE_S
    ) -> list[Message]:
        """As `Broker.messages`."""
        return await asyncio.to_thread(
            self._broker.messages, topic, at_least=at_least, timeout_s=timeout_s
        )

    async def end_offsets(self, topic: str) -> dict[int, int]:
        """As `Broker.end_offsets`."""
        return await asyncio.to_thread(self._broker.end_offsets, topic)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """As `Broker.committed`."""
        return await asyncio.to_thread(self._broker.committed, group)

    async def reset(self) -> None:
        """As `Broker.reset`."""
        await asyncio.to_thread(self._broker.reset)
