"""One life of a broker, as far as transactions go, on a disk whose syncs take their time.

Requests come through numbered connections, as at the Kafka door, and are answered as there: what
was written when the records and the coordinator's own record are both durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from millstream.broker.connection_numbers import ConnectionNumbers
from millstream.broker.durability import durable
from millstream.broker.group_topics import GroupTopics
from millstream.broker.groups import GroupCoordinator
from millstream.broker.opening import open_data
from millstream.broker.partition import Partition
from millstream.broker.topics import Topics
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transaction_registry import Way
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import Record, build
from millstream.settings.groups import GroupSettings
from millstream.settings.log import LogSettings
from millstream.settings.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from millstream.settings.storage import StorageSettings
from millstream.settings.topics import TopicSettings
from millstream.settings.transactions import TransactionSettings
from millstream.storage.flusher import Done, Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog, SyncTask
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import TopicPartition
from tests.fakes.fake_filesystem import FakeFilesystem

SOURCE = "source"
"""The topic that groups read from, with more records than any schedule commits offsets."""
SOURCE_RECORDS = 1000
_NO_MEMBER = Committer("", None, -1)

_ids = count(1)


class DelayedFlusher(Flusher):
    """Syncs on the event loop, each after some time; so those of several logs end in any order."""

    def __init__(self, delay_ms: Callable[[], int]) -> None:
        super().__init__(threads=0, wake=lambda: None)
        self._delay_ms = delay_ms

    def _begin(self, log: PartitionLog, waiters: list[tuple[int, Done]]) -> None:
        super()._begin(log, waiters)
        while not self._jobs.empty():
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay_ms() / 1000, self._run, self._jobs.get())

    def _run(self, job: tuple[PartitionLog, SyncTask] | None) -> None:
        assert job is not None
        error: OSError | None = None
        try:
            job[1].run()
        except OSError as caught:
            error = caught
        self._finished.put((job, error, 0))
        self.collect()


class SimulatedBroker:
    """Call `start` before anything else."""

    def __init__(
        self,
        disk: FakeFilesystem,
        clock: ManualClock,
        *,
        settings: TransactionSettings,
        log_settings: LogSettings,
        sync_ms: Callable[[], int],
        connections: ConnectionNumbers,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self._settings = settings
        self._connections = connections
        self.flusher = DelayedFlusher(sync_ms)
        storage = StorageSettings()
        opened = open_data(disk, "/data", storage=storage, defaults=log_settings, clock=clock)
        self.topics = Topics(
            opened,
            self.flusher,
            settings=TopicSettings(),
            storage=storage,
            defaults=log_settings,
            clock=clock,
            new_id=lambda: next(_ids).to_bytes(16, "big"),
            release=_release,
        )

    async def start(self) -> None:
        await self.topics.start()
        self.groups = GroupCoordinator(
            self.topics.state_log(OFFSETS_TOPIC),
            settings=GroupSettings(),
            clock=self.clock,
            topics=GroupTopics(self.topics).view,
            new_member_id=lambda name: name,
        )
        await self.groups.start(self.topics.cut_end)
        self.topics.forgetting.append(self.groups.topic_deleted)
        self.transactions = TransactionCoordinator(
            self.topics.state_log(TRANSACTIONS_TOPIC),
            TransactionMarkers(
                self.topics,
                self.flusher,
                clock=self.clock,
                end_offsets=self.groups.end_transaction,
            ),
            settings=self._settings,
            clock=self.clock,
            new_producer_id=self._new_producer_id,
        )
        # Those who were there before the power failed are not gone, to themselves.
        self.transactions.connections = self._connections
        await self.transactions.start()

    async def _new_producer_id(self) -> int:
        """One at a time, so that there is a wait in each."""
        return (await self.topics.allocate_producer_ids(1))[0]

    # The door

    async def init(
        self, connection: int, command: InitProducer, heard: Callable[[], None]
    ) -> tuple[int, int]:
        pair = command.producer_id, command.producer_epoch
        self.transactions.hear(
            command.transactional_id,
            Way.COORDINATOR,
            connection,
            producer=None if pair == (-1, -1) else pair,
        )
        heard()
        made = await self.transactions.init_producer(command)
        return made.producer_id, made.producer_epoch

    async def add(self, connection: int, command: AddPartitions) -> None:
        for place in command.partitions:
            if place[0] != OFFSETS_TOPIC:
                self.topics.partition(*place)
        pair = command.producer_id, command.producer_epoch
        self.transactions.hear(command.transactional_id, Way.COORDINATOR, connection, producer=pair)
        await self.transactions.add_partitions(command)

    async def write(
        self,
        connection: int,
        name: str,
        pair: tuple[int, int],
        place: TopicPartition,
        *,
        sequence: int,
        value: bytes,
        adds: bool,
    ) -> tuple[bytes, int]:
        """Returns the id of the topic, and the offset."""
        partition = self.topics.partition(*place)
        settled_at = self.transactions.admit(*pair, name, place, adds=adds, connection=connection)
        batch = build(
            [Record(0, self.clock.now_ms(), None, value)],
            producer_id=pair[0],
            producer_epoch=pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        [outcome] = partition.log.append([batch])
        if isinstance(outcome, MillstreamError):
            raise outcome
        await asyncio.gather(
            durable(self.flusher, partition.log, partition.log.end_offset),
            durable(self.flusher, self.transactions.log, settled_at),
        )
        return partition.topic.topic_id, outcome

    async def commit_offset(
        self, connection: int, name: str, pair: tuple[int, int], offset: int, *, adds: bool
    ) -> None:
        """The group has the name of the transactional id."""

        async def commit() -> Sequence[MillstreamError | None]:
            return await self.groups.commit_in_transaction(
                name,
                _NO_MEMBER,
                [OffsetToCommit(SOURCE, 0, offset, -1, "")],
                producer_id=pair[0],
                producer_epoch=pair[1],
            )

        self.transactions.hear(name, Way.OFFSETS, connection, producer=pair)
        [error] = await self.transactions.commit_offsets(name, *pair, commit, adds=adds)
        if error is not None:
            raise error

    async def end(self, connection: int, command: End) -> tuple[int, int]:
        pair = command.producer_id, command.producer_epoch
        self.transactions.hear(command.transactional_id, Way.COORDINATOR, connection, producer=pair)
        ended = await self.transactions.end(command, connection=connection)
        return ended.producer_id, ended.producer_epoch

    # What there is to be read

    def data_partitions(self) -> Iterator[tuple[tuple[bytes, int], Partition]]:
        for topic in self.topics.all():
            if not topic.is_internal and topic.name != SOURCE:
                for partition in topic.partitions:
                    yield (topic.topic_id, partition.number), partition

    def all_partitions(self) -> Iterator[Partition]:
        for topic in self.topics.all():
            yield from topic.partitions

    def group_offset(self, name: str) -> tuple[int | None, bool]:
        """What a group has committed, and whether a transaction may change it.

        Read without a wait, so that it is of the same moment as the records are.
        """
        hosted = self.groups._runner.find(name)
        if hosted is None:
            return None, False
        found = hosted.offsets.get((SOURCE, 0))
        return None if found is None else found.offset, (SOURCE, 0) in hosted.pending


async def _release(logs: Sequence[LocalLog]) -> None:
    """No thread is at work on them, ever."""
