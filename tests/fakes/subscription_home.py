"""Subscriptions with the topics and the disk that they need, on a clock that jumps.

Its syncs happen at once, in the caller's thread, so that a crash comes where it is told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from millstream.broker.reading import Reader
from millstream.broker.sending import NewRecord, Sender, Sent
from millstream.broker.subscriptions import Delivery, Subscriptions, SubscriptionSettings
from millstream.records import Record
from millstream.settings.log import LogSettings
from millstream.settings.names import SUBSCRIPTIONS_TOPIC
from millstream.settings.subscriptions import SubscriptionLimits
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.simulated_loop import SimulatedLoop
from tests.fakes.topic_host import TopicHost

_Result = TypeVar("_Result")

DEFAULT_TOPICS: Mapping[str, int] = {"t": 1, "t.dlq": 1}


def new_disk(
    topics: Mapping[str, int] = DEFAULT_TOPICS, overrides: Mapping[str, str] | None = None
) -> FakeFilesystem:
    """A disk with topics, by name and number of partitions."""
    disk = FakeFilesystem()
    host = TopicHost(disk)

    async def create() -> None:
        await host.start()
        for name, partitions in topics.items():
            await host.topics.create(name, partitions=partitions, overrides=overrides or {})
        await host.topics.close()

    # Topics are created in threads, which the simulated loop does not know.
    asyncio.run(create())
    host.close()
    return disk


class SubscriptionHome:
    """A broker's subscriptions, from when `run` is first called."""

    def __init__(
        self,
        disk: FakeFilesystem | None = None,
        *,
        limits: SubscriptionLimits | None = None,
        defaults: LogSettings | None = None,
        now_ms: int | None = None,
        has_threads: bool = False,
    ) -> None:
        """With threads, which creating topics needs, the loop's time is the real one."""
        self.disk = disk or new_disk()
        self.host = TopicHost(self.disk, defaults=defaults, first_id=1000)
        self.clock = self.host.clock
        if now_ms is not None:
            self.clock.advance_ms(now_ms - self.clock.now_ms())
        self.topics = self.host.topics
        self.sender = Sender(self.topics, self.host.flusher, clock=self.clock)
        self.reader = Reader(max_unpacked_bytes=1 << 20)
        self._limits = limits or SubscriptionLimits()
        self._loop: asyncio.AbstractEventLoop = (
            asyncio.new_event_loop() if has_threads else SimulatedLoop(self.clock)
        )
        self._crash: BaseException | None = None
        self._is_started = False

    def run(self, main: Coroutine[Any, Any, _Result]) -> _Result:
        """Raises Crash, wherever on the loop that comes."""
        self._loop.set_exception_handler(self._on_error)
        try:
            return self._loop.run_until_complete(self._started(main))
        except RuntimeError:
            if self._crash is not None:
                raise self._crash from None
            raise

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Crash):
            self._crash = error
            loop.stop()
        else:
            loop.default_exception_handler(context)

    async def _started(self, main: Coroutine[Any, Any, _Result]) -> _Result:
        if not self._is_started:
            self._is_started = True
            try:
                await self.host.start()
                self.subscriptions = Subscriptions(
                    self.topics.state_log(SUBSCRIPTIONS_TOPIC),
                    self.topics,
                    self.sender,
                    self.reader,
                    limits=self._limits,
                    clock=self.clock,
                )
                await self.subscriptions.start()
            except BaseException:
                main.close()
                raise
        return await main

    def stop(self) -> None:
        self.run(self.subscriptions.close())
        self._loop.close()
        self.host.close()

    def abandon(self) -> None:
        """Let go of the loop of a process that is no more."""
        self._loop.set_exception_handler(lambda *_: None)
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()
        self._loop.close()

    # What tests do

    async def subscribe(self, name: str = "s", **settings: Any) -> None:
        await self.subscriptions.create("t", name, SubscriptionSettings(**settings))

    def restarted(self, mode: CrashMode = "lost", **options: Any) -> SubscriptionHome:
        """The next process, after a crash of this one."""
        now_ms = self.clock.now_ms()
        self.abandon()
        return SubscriptionHome(self.disk.after_crash(mode), now_ms=now_ms, **options)

    async def let_time_work(self) -> None:
        """Let timers that are due do what they have to do, and what follows from it."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def send(self, *values: bytes, topic: str = "t", **fields: Any) -> list[Sent]:
        records = [NewRecord(value, **fields) for value in values]
        results = await self.sender.send_many(topic, records)
        sent = [each for each in results if isinstance(each, Sent)]
        assert len(sent) == len(results), results
        return sent

    def received(self, limit: int = 100, wait_ms: int = 0) -> list[bytes]:
        """The values of what is there."""
        return values(self.run(self.receive(limit, wait_ms)))

    async def receive(self, limit: int = 100, wait_ms: int = 0, **options: Any) -> list[Delivery]:
        return await self.subscriptions.receive("t", "s", limit, wait_ms, **options)

    async def ack(self, *deliveries: Delivery) -> None:
        await self.subscriptions.ack("t", "s", ids(deliveries))

    async def nack(self, *deliveries: Delivery, **options: Any) -> None:
        await self.subscriptions.nack("t", "s", ids(deliveries), **options)

    def records(self, topic: str, number: int = 0) -> list[Record]:
        """What a topic holds."""
        partition = self.topics.partition(topic, number)
        return self.reader.read(partition, partition.log.start_offset, limit=10_000).records


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.message_id for delivery in deliveries]


def values(deliveries: Sequence[Delivery]) -> list[bytes]:
    return [bytes(delivery.value or b"") for delivery in deliveries]
