"""One flipped bit in any file of a stopped broker changes nothing that was answered, silently.

A bit of the broker's own state is repaired from the other copy. A bit of a topic's records may make
records unreadable, and then the log, the metrics and the health name the file and the position.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from millstream.broker.sending import NewRecord
from millstream.broker.subscriptions import SubscriptionSettings
from millstream.errors import CorruptData, StateDamaged
from millstream.groups.offsets import Committer, OffsetToCommit
from millstream.storage.filesystem import read_whole
from millstream.storage.log_walk import batches_of
from tests.fakes.fake_broker import PATH
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.simulated_loop import run_simulated
from tests.fakes.transaction_home import TransactionHome

SEED_ID = 1000
EVERY = pytest.mark.parametrize(
    "every",
    [
        pytest.param(101, id="few"),
        pytest.param(11, id="some", marks=pytest.mark.system),
        pytest.param(1, id="all", marks=pytest.mark.torture),
    ],
)
BOTH = pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])


class Home(TransactionHome):
    """A broker whose state has something of every kind."""

    async def live(self) -> None:
        await self.topics.create("kept", partitions=2, overrides={"retention.ms": "-1"})
        await self.topics.create("plain", partitions=1, overrides={})
        sender = self.broker.sender
        for number in range(6):
            await sender.send("plain", NewRecord(b"plain %d" % number))
            await sender.send("kept", NewRecord(b"kept %d" % number, key=b"k"))
        nobody = Committer("", None, -1)
        for offset in (1, 3):
            await self.groups.commit(
                "readers", nobody, [OffsetToCommit("plain", 0, offset, -1, "")]
            )
        writer = await self.writer("transfers")
        self.write(writer, "kept", 0, b"in a transaction")
        await self.commit_offset(writer, "movers", "plain", 2)
        await self.end(writer, is_commit=True)
        await self.subscriptions.create("plain", "workers", SubscriptionSettings())
        got = await self.subscriptions.receive("plain", "workers", 4, 0)
        await self.subscriptions.ack("plain", "workers", [each.message_id for each in got[1:3]])

    async def facts(self) -> dict[str, Any]:
        """All that was answered, as this broker has it."""
        facts: dict[str, Any] = {
            "cluster": self.topics.cluster_id,
            "producer ids": self.topics.next_producer_id,
            "topics": self.shape(),
            "ids": {topic.name: topic.topic_id for topic in self.topics.all()},
            "transactions": [
                (each.transactional_id, each.producer_id, each.producer_epoch, each.state)
                for each in self.transactions.registry.list(now_ms=self.clock.now_ms())
            ],
        }
        for group in ("readers", "movers"):
            offsets = await self.groups.fetch_offsets(group)
            facts[group] = {key: each.offset for key, each in offsets.items()}
        for topic in self.topics.all():
            for partition in topic.partitions:
                facts[f"{topic.name}/{partition.number}"] = self._records(topic.name, partition)
        waiting = await self.subscriptions.receive("plain", "workers", 10, 0)
        facts["workers"] = [(each.partition, each.offset) for each in waiting]
        return facts

    def _records(self, topic: str, partition: Any) -> list[bytes] | str:
        if partition.failure is not None:
            return str(partition.failure)
        if topic.startswith("__"):
            # What these hold is in the other facts.
            return ""
        log = partition.log
        try:
            return [bytes(batch) for _, batch in batches_of(log, log.start_offset)]
        except CorruptData as damage:
            return str(damage)


def disk_of_a_life(*, is_clean: bool) -> tuple[FakeFilesystem, dict[str, Any]]:
    home = Home()

    async def live() -> None:
        await home.start()
        await home.live()
        if is_clean:
            await home.stop()

    run_simulated(live(), home.clock)
    disk = home.disk.after_crash("kept")
    return disk, found_on(disk)[1]


def found_on(disk: FakeFilesystem) -> tuple[list[str], dict[str, Any]]:
    """What a broker says of a disk: complaints with file and position, and facts."""
    home = Home(disk.after_crash("kept"), first_id=SEED_ID)

    async def look() -> tuple[list[str], dict[str, Any]]:
        await home.start()
        facts = await home.facts()
        complaints: list[str] = []
        for report in home.topics.reports:
            complaints += map(str, report.damage)
            complaints += report.repaired
        return complaints, facts

    return run_simulated(look(), home.clock)


def files_of(disk: FakeFilesystem, directory: str = PATH) -> list[tuple[str, int]]:
    """Every file, and how many bytes to flip: of room for more records only the beginning."""
    found = []
    for name in disk.sizes(directory):
        path = os.path.join(directory, name)
        content = read_whole(disk, path) or b""
        found.append((path, min(len(content), len(content.rstrip(b"\0")) + 100)))
    for name in disk.directories(directory):
        found += files_of(disk, os.path.join(directory, name))
    return found


@EVERY
@BOTH
def test_flipped_bit_of_the_brokers_own_state_changes_nothing(every: int, is_clean: bool) -> None:
    disk, before = disk_of_a_life(is_clean=is_clean)
    flips = 0
    for path, size in files_of(disk):
        is_own = "/__" in path or path.count("/") == PATH.count("/") + 1
        for position in range(len(path) % every, size if is_own else 0, every):
            flipped = disk.after_crash("kept")
            flipped.flip(path, position, position % 8)
            _, facts = found_on(flipped)
            assert facts == before, (path, position)
            flips += 1
    assert flips


@EVERY
def test_flipped_bit_of_records_is_reported_by_file_and_position(every: int) -> None:
    disk, before = disk_of_a_life(is_clean=True)
    flips = 0
    for path, size in files_of(disk):
        if "/topics/__" in path or "/copies/" in path or "/topics/" not in path:
            continue
        for position in range(len(path) % every, size, every):
            flipped = disk.after_crash("kept")
            flipped.flip(path, position, position % 8)
            complaints, facts = found_on(flipped)
            if facts != before:
                assert any(path in each for each in complaints), (path, position, complaints)
            flips += 1
    assert flips


def test_flip_in_both_copies_of_the_catalog_keeps_the_broker_from_starting() -> None:
    disk, _ = disk_of_a_life(is_clean=True)
    name = "__catalog/0/00000000000000000000.log"
    for copy in ("topics", "copies"):
        disk.flip(f"{PATH}/{copy}/{name}", 200, 0)
    with pytest.raises(StateDamaged) as raised:
        found_on(disk)
    for copy in ("topics", "copies"):
        assert f"{PATH}/{copy}/{name}: bytes" in str(raised.value)
