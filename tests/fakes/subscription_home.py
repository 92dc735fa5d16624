"""A fake broker on a simulated loop, and what clients of its subscriptions do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from millstream.broker.reading import Reader
from millstream.broker.sending import NewRecord, Sender, Sent
from millstream.broker.subscriptions import Delivery, SubscriptionSettings
from millstream.records import Record
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, FakeFilesystem
from tests.fakes.simulated_loop import SimulatedLoop, run_simulated

_Result = TypeVar("_Result")

DEFAULT_TOPICS: Mapping[str, int] = {"t": 1, "t.dlq": 1}


def new_disk(
    topics: Mapping[str, int] = DEFAULT_TOPICS, overrides: Mapping[str, str] | None = None
) -> FakeFilesystem:
    """A disk with topics, by name and number of partitions."""
    broker = FakeBroker()

    async def create() -> None:
        await broker.start()
        for name, partitions in topics.items():
            await broker.topics.create(name, partitions=partitions, overrides=overrides or {})
        await broker.stop()

    run_simulated(create(), broker.clock)
    return broker.disk


class SubscriptionHome(FakeBroker):
    """A broker on a simulated loop of its own, which starts when `run` is first called."""

    def __init__(
        self, disk: FakeFilesystem | None = None, *, now_ms: int | None = None, **options: Any
    ) -> None:
        super().__init__(disk or new_disk(), first_id=1000, **options)
        if now_ms is not None:
            self.clock.advance_ms(now_ms - self.clock.now_ms())
        self._loop = SimulatedLoop(self.clock)
        self._crash: BaseException | None = None
        self._is_started = False

    @property
    def sender(self) -> Sender:
        return self.broker.sender

    @property
    def reader(self) -> Reader:
        return self.broker.reader

    def run(self, main: Coroutine[Any, Any, _Result]) -> _Result:
        """Raises Crash, wherever on the loop it happens."""
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
                await self.start()
            except BaseException:
                main.close()
                raise
        return await main

    def close(self) -> None:
        """Stop in good order, and close the loop."""
        self.run(self.stop())
        self._loop.close()

    def abandon(self) -> None:
        """Close the loop of a process that has crashed."""
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
        now_ms, disk = self.wall.now_ms(), self.disk.after_crash(mode)
        self.abandon()
        return SubscriptionHome(disk, now_ms=now_ms, **options)

    async def let_time_work(self) -> None:
        """Let timers that are due fire, and what they begin end."""
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
