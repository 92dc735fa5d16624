"""Reading from several partitions at once, within limits."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.fetch import NO_OFFSET, Reading, Wanted, read
from millstream.broker.partition import Partition
from millstream.errors import OffsetOutOfRange, StorageFailure, UnknownTopic
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.sample_batches import batch_of, headers_in

SIZE = len(batch_of(b"x" * 100))
PARTITIONS, BATCHES = 3, 4


def _partitions() -> list[Partition]:
    host = FakeBroker()

    async def main() -> list[Partition]:
        await host.start()
        topic = await host.topics.create("t", partitions=PARTITIONS, overrides={})
        for partition in topic.partitions:
            partition.log.append([batch_of(b"x" * 100) for _ in range(BATCHES)])
        return topic.partitions

    return asyncio.run(main())


@pytest.fixture(scope="module")
def partitions() -> list[Partition]:
    return _partitions()


def wanted(partitions: list[Partition], offset: int = 0, max_bytes: int = 1 << 20) -> list[Wanted]:
    return [Wanted(p.number, p, offset, max_bytes) for p in partitions]


def sizes(reading: Reading) -> list[int]:
    return [len(found.records) for found in reading.found]


def test_places_are_answered_in_the_order_they_were_asked_for(partitions: list[Partition]) -> None:
    reading = read(wanted(partitions)[::-1], max_bytes=1 << 20)
    assert [found.number for found in reading.found] == [2, 1, 0]
    assert reading.size == PARTITIONS * BATCHES * SIZE
    assert not reading.has_errors


@pytest.mark.parametrize(
    ("max_bytes", "partition_bytes", "expected"),
    [
        (0, 0, [1, 0, 0]),
        (1, 1 << 20, [1, 0, 0]),
        (SIZE, SIZE, [1, 0, 0]),
        (2 * SIZE - 1, SIZE, [1, 0, 0]),
        (2 * SIZE, SIZE, [1, 1, 0]),
        (5 * SIZE, 2 * SIZE, [2, 2, 1]),
        (1 << 20, 2 * SIZE, [2, 2, 2]),
        (1 << 20, SIZE - 1, [1, 0, 0]),
        (1 << 20, -1, [1, 0, 0]),
        (-5, 1 << 20, [1, 0, 0]),
    ],
)
def test_limits_hold_but_for_the_first_batch(
    partitions: list[Partition], max_bytes: int, partition_bytes: int, expected: list[int]
) -> None:
    reading = read(wanted(partitions, 0, partition_bytes), max_bytes=max_bytes)
    assert sizes(reading) == [count * SIZE for count in expected]


@given(st.integers(-10, 20 * SIZE), st.integers(-10, 20 * SIZE), st.integers(0, BATCHES))
def test_limits_hold_always(max_bytes: int, partition_bytes: int, offset: int) -> None:
    reading = read(wanted(_MADE_ONCE, offset, partition_bytes), max_bytes=max_bytes)
    found = sizes(reading)
    assert reading.size == sum(found) <= max(max_bytes, SIZE)
    assert all(size % SIZE == 0 for size in found), "batches are whole"
    assert all(size <= max(partition_bytes, 0) for size in found[1:])
    assert (reading.size > 0) == (offset < BATCHES), "whoever can get on gets on"


_MADE_ONCE = _partitions()


def test_partition_with_nothing_new_does_not_use_up_the_first_batch(
    partitions: list[Partition],
) -> None:
    places = [Wanted(0, partitions[0], BATCHES, 1), Wanted(1, partitions[1], 0, 1)]
    assert sizes(read(places, max_bytes=1)) == [0, SIZE]


def test_read_starts_with_the_batch_that_holds_the_offset(partitions: list[Partition]) -> None:
    [found] = read(wanted(partitions[:1], 2), max_bytes=1 << 20).found
    assert [h.base_offset for h in headers_in(memoryview(found.records))] == [2, 3]
    assert (found.start_offset, found.end_offset) == (0, BATCHES)


@pytest.mark.parametrize("offset", [-1, BATCHES + 1])
def test_offset_outside_the_log_is_an_error_of_that_place_alone(
    partitions: list[Partition], offset: int
) -> None:
    places = [Wanted(0, partitions[0], offset, SIZE), Wanted(1, partitions[1], 0, SIZE)]
    reading = read(places, max_bytes=1 << 20)
    bad, good = reading.found
    assert isinstance(bad.error, OffsetOutOfRange)
    assert bad.end_offset == NO_OFFSET
    assert len(good.records) == SIZE
    assert reading.has_errors


def test_error_instead_of_a_partition_is_handed_through(partitions: list[Partition]) -> None:
    error = UnknownTopic("t")
    reading = read([Wanted(5, error, 0, 1), *wanted(partitions[:1])], max_bytes=SIZE)
    assert reading.found[0].error is error
    assert sizes(reading) == [0, SIZE]


def test_partition_that_could_not_be_opened_is_an_error(partitions: list[Partition]) -> None:
    broken = Partition(partitions[0].topic, 9, None)
    [found] = read([Wanted(9, broken, 0, SIZE)], max_bytes=SIZE).found
    assert isinstance(found.error, StorageFailure)
