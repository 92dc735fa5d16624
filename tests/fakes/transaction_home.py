"""A fake broker with transactional producers, and readers of what they committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.broker.partition import Partition
from millstream.errors import MillstreamError
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.records import Record, build, records_of
from millstream.storage.batch_walk import split_batches
from millstream.transactions.commands import AddPartitions, End, InitProducer
from tests.fakes.fake_broker import FakeBroker

TIMEOUT_MS = 60_000
NO_MEMBER = Committer("", None, -1)


@dataclass
class Writer:
    """A producer as it sees itself."""

    name: str
    producer_id: int
    epoch: int
    bumps_epoch: bool = True
    """Whether it takes a new epoch with every transaction, as newer clients do."""
    sequences: dict[tuple[str, int], int] | None = None

    def next_sequence(self, place: tuple[str, int], count: int) -> int:
        if self.sequences is None:
            self.sequences = {}
        first = self.sequences.get(place, 0)
        self.sequences[place] = first + count
        return first

    def go_on(self, producer_id: int, epoch: int) -> None:
        """Take what the coordinator says; a new epoch counts from the start."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch, self.sequences = producer_id, epoch, None


class TransactionHome(FakeBroker):
    """A broker, with what transactional producers and their readers do."""

    # As a producer

    async def writer(
        self, name: str = "w", *, timeout_ms: int = TIMEOUT_MS, bumps_epoch: bool = True
    ) -> Writer:
        made = await self.transactions.init_producer(InitProducer(name, timeout_ms))
        return Writer(name, made.producer_id, made.producer_epoch, bumps_epoch)

    async def add(self, writer: Writer, *places: tuple[str, int]) -> None:
        await self.transactions.add_partitions(
            AddPartitions(writer.name, writer.producer_id, writer.epoch, frozenset(places))
        )

    def write(
        self,
        writer: Writer,
        topic: str,
        number: int,
        *values: bytes,
        is_settled: bool = True,
        connection: int = 1,
    ) -> int:
        """Append records, as the produce handler does; returns their first offset. Raises.

        Unless `is_settled`, the coordinator's own record of it is not on disk yet.
        """
        place = (topic, number)
        self.transactions.admit(
            writer.producer_id,
            writer.epoch,
            writer.name,
            place,
            adds=writer.bumps_epoch,
            connection=connection,
        )
        batch = build(
            [Record(n, self.clock.now_ms(), None, value) for n, value in enumerate(values)],
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            base_sequence=writer.next_sequence(place, len(values)),
            transactional=True,
        )
        partition = self.partition(topic, number)
        [outcome] = partition.log.append([batch])
        if isinstance(outcome, MillstreamError):
            raise outcome
        self.flusher.when_durable(partition.log, partition.log.end_offset, lambda _: None)
        if is_settled:
            log = self.transactions.log
            self.flusher.when_durable(log, log.end_offset, lambda _: None)
        return outcome

    async def commit_offset(self, writer: Writer, group: str, topic: str, offset: int) -> None:
        """Commit an offset of a group in the writer's transaction."""

        async def commit() -> Sequence[MillstreamError | None]:
            return await self.groups.commit_in_transaction(
                group,
                NO_MEMBER,
                [OffsetToCommit(topic, 0, offset, -1, "")],
                producer_id=writer.producer_id,
                producer_epoch=writer.epoch,
            )

        if not writer.bumps_epoch:
            await self.transactions.add_offsets(writer.name, writer.producer_id, writer.epoch)
        [error] = await self.transactions.commit_offsets(
            writer.name, writer.producer_id, writer.epoch, commit, adds=writer.bumps_epoch
        )
        if error is not None:
            raise error

    async def end(self, writer: Writer, *, is_commit: bool, connection: int = 1) -> None:
        ended = await self.transactions.end(
            End(writer.name, writer.producer_id, writer.epoch, is_commit, writer.bumps_epoch),
            connection=connection,
        )
        writer.go_on(ended.producer_id, ended.producer_epoch)

    # As a reader

    def partition(self, topic: str, number: int) -> Partition:
        return self.topics.partition(topic, number)

    async def committed_offset(self, group: str, topic: str) -> int | None:
        found = (await self.groups.fetch_offsets(group)).get((topic, 0))
        return None if found is None else found.offset

    def committed(self, topic: str, number: int = 0) -> list[bytes]:
        """The values that a reader of committed records sees."""
        log = self.partition(topic, number).log
        stable = log.last_stable_offset
        aborted = log.aborted_transactions(log.start_offset, stable)
        seen = []
        offset = log.start_offset
        while offset < stable:
            for header, batch in split_batches(log.read(offset, 1 << 20, below=stable)):
                offset = header.next_offset
                is_aborted = header.is_transactional and any(
                    each.producer_id == header.producer_id
                    and each.first_offset <= header.base_offset <= each.last_offset
                    for each in aborted
                )
                if not header.is_control and not is_aborted:
                    records = records_of(batch, limit_bytes=1 << 20)
                    seen += [bytes(record.value or b"") for record in records]
        return seen
