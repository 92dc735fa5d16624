"""Fetch over a real connection: limits, long polls, and partitions that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.fakes.open_door import OpenDoor, open_door, run, until
from tests.fakes.sample_batches import batch_of, headers_in, records_in
from tests.fakes.wire_client import WireClient, fetch_request, fetched
from tests.fakes.wire_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

VERSION = 12
LONG_MS = 60_000


def values(found: PartitionData) -> list[bytes | None]:
    assert found.error_code == 0
    return [record.value for record in records_in(memoryview(found.records or b""))]


async def _parked(opened: OpenDoor, topic: str = "t") -> None:
    """Return when a fetch waits for the first partition of a topic."""
    partition = opened.broker.topics.partition(topic, 0)
    await until(lambda: partition.waiters)


async def _produce(client: WireClient, *batches: bytearray, partition: int = 0) -> None:
    for batch in batches:
        assert (await client.produce("t", batch, partition=partition)).error_code == 0


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_reads_what_was_written(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a"), batch_of(b"b", b"c"))
            topic = opened.broker.topics.get("t").topic_id if version >= 13 else "t"
            found = await client.fetch(topic, 1, version=version)
            assert values(found) == [b"b", b"c"]
            assert (found.high_watermark, found.last_stable_offset) == (3, 3)

    run(main())


def test_fetch_that_starts_inside_a_batch_gets_the_whole_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a", b"b", b"c"), batch_of(b"d"))
            found = await client.fetch("t", 2)
            assert headers_in(memoryview(found.records or b""))[0].base_offset == 0
            assert values(found) == [b"a", b"b", b"c", b"d"]

    run(main())


@pytest.mark.parametrize("limits", [{"max_bytes": 1}, {"partition_bytes": 1}, {"max_bytes": 0}])
def test_first_batch_comes_however_small_the_limit(limits: dict[str, int], tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a" * 1000), batch_of(b"b"))
            assert values(await client.fetch("t", 0, **limits)) == [b"a" * 1000]

    run(main())


def test_partitions_behind_the_first_obey_the_limits(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", partitions=3)
            client = await opened.connect()
            one = batch_of(b"x" * 1000)
            for partition in range(3):
                await _produce(client, batch_of(b"x" * 1000), partition=partition)

            async def sizes(max_bytes: int, partition_bytes: int) -> list[int]:
                request = fetch_request(
                    "t",
                    0,
                    partitions=(0, 1, 2),
                    max_bytes=max_bytes,
                    partition_bytes=partition_bytes,
                )
                answer: FetchResponse = await client.ask(request, VERSION)
                return [len(p.records or b"") for p in answer.responses[0].partitions]

            size = len(one)
            assert await sizes(1, size) == [size, 0, 0]
            assert await sizes(2 * size, size) == [size, size, 0]
            assert await sizes(2 * size + 1, size) == [size, size, 0]
            assert await sizes(10 * size, size - 1) == [size, 0, 0]
            assert await sizes(10 * size, size) == [size, size, size]

    run(main())


def test_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, fetch_max_bytes=1024) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, *(batch_of(b"x" * 400) for _ in range(5)))
            assert len(values(await client.fetch("t", 0, min_bytes=1 << 20))) == 2

    run(main())


def test_long_poll_wakes_on_an_append(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            reader, writer = await opened.connect(), await opened.connect()
            await reader.begin(fetch_request("t", 0, max_wait_ms=LONG_MS), VERSION)
            await _parked(opened)
            await _produce(writer, batch_of(b"a"))
            assert values(fetched(await reader.receive())) == [b"a"]

    run(main())


def test_long_poll_waits_until_there_is_enough(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", partitions=2)
            reader, writer = await opened.connect(), await opened.connect()
            enough = 2 * len(batch_of(b"a"))
            request = fetch_request(
                "t", 0, partitions=(0, 1), max_wait_ms=LONG_MS, min_bytes=enough
            )
            await reader.begin(request, VERSION)
            await _parked(opened)
            await _produce(writer, batch_of(b"a"))
            await _parked(opened)
            await _produce(writer, batch_of(b"b"), partition=1)
            answer: FetchResponse = await reader.receive()
            assert [values(p) for p in answer.responses[0].partitions] == [[b"a"], [b"b"]]

    run(main())


def test_long_poll_ends_at_its_deadline_with_what_there_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a"))
            found = await client.fetch("t", 0, max_wait_ms=50, min_bytes=10_000)
            assert values(found) == [b"a"]
            assert values(await client.fetch("t", 1, max_wait_ms=50)) == []
            assert not opened.broker.topics.partition("t", 0).waiters

    run(main())


def test_fetch_that_wants_more_than_it_takes_does_not_wait_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a" * 1000), batch_of(b"b" * 1000))
            found = await client.fetch(
                "t", 0, max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=1000
            )
            assert values(found) == [b"a" * 1000]

    run(main())


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_topic_deleted_under_a_long_poll_answers_it(by_id: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            reader, admin = await opened.connect(), await opened.connect()
            topic = opened.broker.topics.get("t").topic_id if by_id else "t"
            version = 13 if by_id else VERSION
            await reader.begin(fetch_request(topic, 0, max_wait_ms=LONG_MS), version)
            await _parked(opened)
            await admin.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert fetched(await reader.receive()).error_code == code

    run(main())


@pytest.mark.parametrize(
    ("topic", "partition", "version", "code"),
    [
        ("missing", 0, VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (b"\1" * 16, 0, 13, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_partition_that_is_not_there_is_answered_at_once(
    topic: str | bytes, partition: int, version: int, code: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            found = await client.fetch(
                topic, 0, partitions=(partition,), max_wait_ms=LONG_MS, version=version
            )
            assert found.error_code == code

    run(main())


@pytest.mark.parametrize("offset", [-1, 2, 2**62])
def test_offset_outside_the_log_is_answered_at_once(offset: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a"))
            found = await client.fetch("t", offset, max_wait_ms=LONG_MS)
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(main())


def test_leader_epoch_of_the_future_is_unknown(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            wanted = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=5)
            request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[wanted])])
            found = fetched(await client.ask(request, VERSION))
            assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(main())


def test_session_that_nobody_gave_is_not_found(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            request = FetchRequest(session_id=7, session_epoch=1)
            answer: FetchResponse = await client.ask(request, VERSION)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(main())


def test_one_bad_partition_does_not_hide_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            await _produce(client, batch_of(b"a"))
            request = fetch_request("t", 0, partitions=(7, 0), max_wait_ms=LONG_MS)
            answer: FetchResponse = await client.ask(request, VERSION)
            bad, good = answer.responses[0].partitions
            assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert values(good) == [b"a"]

    run(main())
