"""Appends that are gathered while one read is worked off, and stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from millstream.broker.append_cycle import NO_TIME, AppendCycle
from millstream.broker.partition import Partition
from millstream.errors import ChecksumMismatch, InvalidBatch, MessageTooLarge, StorageFailure
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.sample_batches import batch_of, idempotent_batch, values_of


class Woken:
    """Waits for more, and counts how often it was told of some."""

    def __init__(self) -> None:
        self.times = 0

    def wake(self) -> None:
        self.times += 1


def partitions_of(
    count: int = 1,
    overrides: Mapping[str, str] | None = None,
    disk: FakeFilesystem | None = None,
) -> tuple[FakeBroker, list[Partition]]:
    host = FakeBroker(disk)

    async def main() -> list[Partition]:
        await host.start()
        return (
            await host.topics.create("t", partitions=count, overrides=overrides or {})
        ).partitions

    return host, asyncio.run(main())


def test_batches_are_stored_in_the_order_in_which_they_were_added() -> None:
    _, [first, second] = partitions_of(2)
    cycle = AppendCycle()
    kept = [
        cycle.add(partition, memoryview(batch_of(value)))
        for partition, value in [(first, b"a"), (second, b"b"), (first, b"c"), (first, b"d")]
    ]
    assert first.log.end_offset == second.log.end_offset == 0, "nothing is stored before run"
    cycle.run()
    assert values_of(first.log) == [b"a", b"c", b"d"]
    assert values_of(second.log) == [b"b"]
    assert [appended.outcomes[number] for appended, number in kept] == [0, 0, 1, 2]


def test_batch_that_is_refused_leaves_the_others_alone() -> None:
    _, [partition] = partitions_of(overrides={"max.message.bytes": "200"})
    damaged = batch_of(b"damaged")
    damaged[-1] ^= 1
    cycle = AppendCycle()
    batches = [b"", b"no batch", damaged, batch_of(b"x" * 500), batch_of(b"good")]
    kept = [cycle.add(partition, memoryview(bytearray(batch))) for batch in batches]
    cycle.run()
    outcomes = [appended.outcomes[number] for appended, number in kept]
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [InvalidBatch, InvalidBatch, ChecksumMismatch, MessageTooLarge, int]
    assert values_of(partition.log) == [b"good"]


def test_no_view_of_what_was_received_is_kept() -> None:
    _, [partition] = partitions_of()
    received = bytearray(batch_of(b"a"))
    cycle = AppendCycle()
    kept = cycle.add(partition, memoryview(received)[:])
    cycle.run()
    received.append(0)
    assert kept[0].outcomes == [0]


def test_what_is_dropped_is_never_stored() -> None:
    _, [partition] = partitions_of()
    cycle = AppendCycle()
    cycle.add(partition, memoryview(batch_of(b"a")))
    cycle.drop()
    cycle.run()
    assert partition.log.end_offset == 0


def test_who_waits_for_a_partition_is_woken_once_per_run() -> None:
    _, [first, second] = partitions_of(2)
    waiter, other = Woken(), Woken()
    first.waiters[waiter] = None
    second.waiters[other] = None
    cycle = AppendCycle()
    for value in (b"a", b"b"):
        cycle.add(first, memoryview(batch_of(value)))
    cycle.run()
    cycle.run()
    assert (waiter.times, other.times) == (1, 0)


@pytest.mark.parametrize("stamped", [True, False])
def test_time_of_append_is_known_where_the_log_sets_it(stamped: bool) -> None:
    kind = "LogAppendTime" if stamped else "CreateTime"
    host, [partition] = partitions_of(overrides={"message.timestamp.type": kind})
    cycle = AppendCycle()
    bad, _ = cycle.add(partition, memoryview(bytearray(b"no batch")))
    cycle.add(partition, memoryview(batch_of(b"a")))
    cycle.run()
    assert bad.append_time_ms == (host.clock.now_ms() if stamped else NO_TIME)


def test_repeat_of_an_idempotent_batch_does_not_set_the_time_of_others() -> None:
    host, [partition] = partitions_of(overrides={"message.timestamp.type": "LogAppendTime"})
    cycle = AppendCycle()
    cycle.add(partition, memoryview(idempotent_batch(0)))
    cycle.run()
    host.clock.advance_ms(5000)
    kept, _ = cycle.add(partition, memoryview(idempotent_batch(0)))
    cycle.add(partition, memoryview(idempotent_batch(1)))
    cycle.run()
    assert kept.outcomes == [0, 1]
    assert kept.append_time_ms == host.clock.now_ms()


def test_failure_afterwards_takes_all_outcomes_back() -> None:
    _, [partition] = partitions_of()
    cycle = AppendCycle()
    kept, _ = cycle.add(partition, memoryview(batch_of(b"a")))
    cycle.run()
    failure = StorageFailure(path="t/0", operation="sync", reason="it is broken")
    kept.fail(failure)
    assert kept.outcomes == [failure]


def test_full_disk_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeFilesystem()
    _, [partition] = partitions_of(disk=disk)
    cycle = AppendCycle()

    def append(times: int) -> None:
        for _ in range(times):
            cycle.add(partition, memoryview(batch_of(b"x" * 100)))
            cycle.run()

    with caplog.at_level("INFO"):
        append(2)
        assert caplog.messages == []
        disk.space_bytes = 0
        append(3)
        assert ["takes no records: no space left" in said for said in caplog.messages] == [True]
        disk.space_bytes = None
        append(2)
    assert caplog.messages[1:] == ["t/0 takes records again"]
