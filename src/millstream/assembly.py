"""Composition root: the only place where what is behind the listeners is wired together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

from millstream.broker.broker import Broker
from millstream.broker.broker_metrics import watch
from millstream.broker.dynamic_settings import DynamicSettings
from millstream.broker.group_topics import GroupTopics
from millstream.broker.groups import GroupCoordinator
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.memory_budget import MemoryBudget, budget_bytes
from millstream.broker.opening import Opened, open_data
from millstream.broker.pipelines import Pipelines
from millstream.broker.producer_ids import PRODUCER_ID_BLOCK, ProducerIds
from millstream.broker.reading import Reader
from millstream.broker.recovery_reports import log_reports
from millstream.broker.sending import Sender
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.topics import Topics
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock, SystemClock
from millstream.errors import InvalidSetting
from millstream.gateways.kafka.listener import Door
from millstream.identity import new_id, new_name
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from millstream.settings.names import OFFSETS_TOPIC, SUBSCRIPTIONS_TOPIC, TRANSACTIONS_TOPIC
from millstream.settings.telemetry import TelemetrySettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import Filesystem, LocalFilesystem, passing_trouble
from millstream.storage.flusher import Flusher
from millstream.telemetry.tracing import Tracing, open_tracing

_log = logging.getLogger(__name__)


class NewFlusher(Protocol):
    def __call__(self, *, threads: int, wake: Callable[[], None]) -> Flusher: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a broker takes from its machine: disk, time, randomness. Tests replace them."""

    filesystem: Filesystem = field(default_factory=LocalFilesystem)
    clock: Clock = field(default_factory=SystemClock)
    new_flusher: NewFlusher = Flusher
    new_id: Callable[[], bytes] = new_id
    """16 bytes that were never used before."""
    new_name: Callable[[str], str] = new_name
    """A name with this prefix that was never used before."""
    producer_id_block: int = PRODUCER_ID_BLOCK
    """How many producer ids one write to the catalog reserves."""
    kafka_door: Callable[[Broker, KafkaSettings], Door] | None = None
    """None for the usual one."""
    open_tracing: Callable[[TelemetrySettings], Tracing] = open_tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """Everything behind the listeners."""

    broker: Broker
    housekeeping: Housekeeping
    directory: DataDirectory

    async def close(self) -> None:
        """Finish what is under way, in an order that keeps each promise made to a client."""
        try:
            await self.broker.subscriptions.close()
            self.broker.groups.close()
            await self.broker.transactions.close()
            await self.broker.topics.close()
        finally:
            _close_data(self.broker.flusher, self.directory)


@asynccontextmanager
async def assembled(
    path: str,
    settings: Settings,
    dependencies: Dependencies | None = None,
    tracing: Tracing | None = None,
) -> AsyncIterator[Assembly]:
    """Open a data directory and run everything behind the listeners until the block ends."""
    assembly = await assemble(path, settings, dependencies, tracing)
    try:
        yield assembly
    except BaseException:
        _close_data(assembly.broker.flusher, assembly.directory)
        raise
    await assembly.close()


async def assemble(
    path: str,
    settings: Settings,
    dependencies: Dependencies | None = None,
    tracing: Tracing | None = None,
) -> Assembly:
    """Open a data directory and wire a broker to it. The caller closes the result."""
    dependencies = dependencies or Dependencies()
    # Recovery reads the disk; meanwhile the loop stays free to handle signals.
    opened = await asyncio.to_thread(_open, path, settings, dependencies)
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(flusher.collect)

    flusher = dependencies.new_flusher(threads=settings.storage.flush_threads, wake=wake)
    try:
        return await _wired(opened, flusher, settings, dependencies, tracing)
    except BaseException:
        _close_data(flusher, opened.directory)
        raise


def _close_data(flusher: Flusher, directory: DataDirectory) -> None:
    flusher.close()
    directory.close()
    _log_notes(directory.take_notes())


async def _wired(
    opened: Opened,
    flusher: Flusher,
    settings: Settings,
    dependencies: Dependencies,
    tracing: Tracing | None,
) -> Assembly:
    log_reports(opened.directory.reports)
    _log_notes([*opened.directory.take_notes(), *opened.notes])
    clock = dependencies.clock
    housekeeping = Housekeeping(
        opened.directory,
        flusher,
        dependencies.filesystem,
        storage=settings.storage,
        defaults=settings.log,
        clock=clock,
    )
    topics = Topics(
        opened,
        flusher,
        settings=settings.topics,
        storage=settings.storage,
        defaults=settings.log,
        clock=clock,
        new_id=dependencies.new_id,
        release=housekeeping.release,
    )
    for note in await topics.start():
        _log.info("%(note)s", {"note": note})
    broker = await _coordinated(topics, flusher, settings, dependencies, tracing)
    housekeeping.retention.readers = broker.groups.readers
    topics.on_deleted.append(lambda topic: housekeeping.retention.forget(topic.name))
    watch(broker, housekeeping)
    return Assembly(broker=broker, housekeeping=housekeeping, directory=opened.directory)


async def _coordinated(
    topics: Topics,
    flusher: Flusher,
    settings: Settings,
    dependencies: Dependencies,
    tracing: Tracing | None,
) -> Broker:
    """Start the coordinators from their logs, and build the whole broker."""
    clock = dependencies.clock
    groups = GroupCoordinator(
        topics.state_log(OFFSETS_TOPIC),
        settings=settings.groups,
        clock=clock,
        topics=GroupTopics(topics).view,
        new_member_id=dependencies.new_name,
    )
    await groups.start(topics.cut_end)
    topics.forgetting.append(groups.topic_deleted)
    producer_ids = ProducerIds(topics.allocate_producer_ids, block=dependencies.producer_id_block)
    transactions = TransactionCoordinator(
        topics.state_log(TRANSACTIONS_TOPIC),
        TransactionMarkers(topics, flusher, clock=clock, end_offsets=groups.end_transaction),
        settings=settings.transactions,
        clock=clock,
        new_producer_id=producer_ids.next,
    )
    # After the groups: their offsets are part of transactions that may have to be ended.
    await transactions.start()
    sender = _new_sender(topics, flusher, clock, tracing)
    reader = Reader(max_unpacked_bytes=settings.storage.max_decompressed_bytes)
    subscriptions = Subscriptions(
        topics.state_log(SUBSCRIPTIONS_TOPIC),
        topics,
        sender,
        reader,
        limits=settings.subscriptions,
        clock=clock,
    )
    await subscriptions.start()
    return Broker(
        topics=topics,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        subscriptions=subscriptions,
        pipelines=Pipelines(topics, reader, clock=clock),
        sender=sender,
        reader=reader,
        flusher=flusher,
        memory=MemoryBudget(budget_bytes(settings.memory.max_bytes)),
        clock=clock,
        settings=settings,
        dynamic=DynamicSettings(settings, topics=topics, groups=groups),
        tracing=tracing,
    )


def _new_sender(topics: Topics, flusher: Flusher, clock: Clock, tracing: Tracing | None) -> Sender:
    if tracing is None:
        return Sender(topics, flusher, clock=clock)
    from millstream.broker.traced_sender import TracedSender

    return TracedSender(topics, flusher, clock=clock, tracing=tracing)


def _log_notes(notes: Iterable[str]) -> None:
    for note in notes:
        _log.warning("%(note)s", {"note": note})


def _open(path: str, settings: Settings, dependencies: Dependencies) -> Opened:
    try:
        return open_data(
            dependencies.filesystem,
            path,
            storage=settings.storage,
            defaults=settings.log,
            clock=dependencies.clock,
        )
    except OSError as error:
        if (trouble := passing_trouble(error, path)) is not None:
            raise trouble from None
        raise InvalidSetting(
            name="data.dir",
            value=path,
            expected=f"a directory that can be opened ({error.strerror})",
        ) from None
