"""Produce over a real connection: what is stored, what is refused, and how it is told."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from millstream.assembly import Dependencies
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import produce
from millstream.protocol.messages.produce import parse_request
from millstream.protocol.primitives import varint
from millstream.records import Codec, Record, build
from millstream.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    seal,
)
from millstream.records.recompression import codec_of
from millstream.storage.batch_walk import split_batches
from tests.fakes.direct_transport import DirectTransport
from tests.fakes.open_door import OpenDoor, open_door, run, until
from tests.fakes.sample_batches import (
    batch_of,
    idempotent_batch,
    read_all,
    records_in,
    values_of,
)
from tests.fakes.wire_client import (
    framed,
    header,
    produce_request,
    produced,
    request_frame,
)
from tests.fakes.wire_messages import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSION = 9


def _marked(bit: int) -> bytearray:
    batch = batch_of(b"a")
    batch[ATTRIBUTES_AT + 1] |= bit
    seal(batch)
    return batch


def _damaged() -> bytearray:
    batch = batch_of(b"a")
    batch[CRC_AT] ^= 1
    return batch


def _miscounted() -> bytearray:
    batch = batch_of(b"a")
    struct.pack_into(">i", batch, HEADER_BYTES - 4, -1)
    seal(batch)
    return batch


def _old() -> bytearray:
    batch = batch_of(b"a")
    batch[16] = 1
    return batch


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_stores_and_tells_where(version: int, acks: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            topic = opened.broker.topics.get("t").topic_id if version >= 13 else "t"
            client = await opened.connect()
            for n in range(4):
                stored = await client.produce(
                    topic, batch_of(b"%d" % n), acks=acks, version=version
                )
                assert (stored.error_code, stored.base_offset) == (0, n)
            log = opened.broker.topics.partition("t", 0).log
            assert values_of(log) == [b"0", b"1", b"2", b"3"]
            if acks == -1:
                assert log.synced_offset == 4

    run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_with_old_record_formats_are_refused_on_use(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            stored = await client.produce("t", batch_of(b"a"), version=version)
            assert stored.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    run(main())


# Sent twice, since the second of two like requests takes another way through the code.
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("topic", "batch", "code"),
    [
        ("t", _marked(CONTROL_BIT), ErrorCode.INVALID_RECORD),
        ("t", _marked(TRANSACTIONAL_BIT), ErrorCode.INVALID_REQUIRED_ACKS),
        ("t", _damaged(), ErrorCode.CORRUPT_MESSAGE),
        ("t", _old(), ErrorCode.INVALID_RECORD),
        ("t", batch_of(b"x" * 3000), ErrorCode.MESSAGE_TOO_LARGE),
        ("t", bytearray(b"no batch"), ErrorCode.INVALID_RECORD),
        ("t", bytearray(), ErrorCode.INVALID_RECORD),
        ("t", None, ErrorCode.INVALID_RECORD),
        ("t", batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
        ("missing", batch_of(b"a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", batch_of(b"a"), ErrorCode.INVALID_RECORD),
        ("compacted", _damaged(), ErrorCode.CORRUPT_MESSAGE),
        ("compacted", _miscounted(), ErrorCode.INVALID_RECORD),
        ("compacted", bytearray(b"no batch"), ErrorCode.INVALID_RECORD),
        ("__consumer_offsets", batch_of(b"a"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__catalog", batch_of(b"a"), None),
        ("../../etc", batch_of(b"a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_to_be_stored_is_refused(
    topic: str, batch: bytearray | None, code: int | None, times: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", max_message_bytes="2000")
            await opened.topic("compacted", cleanup_policy="compact")
            client = await opened.connect()
            assert (await client.produce("t", batch_of(b"fine"))).base_offset == 0
            for _ in range(times):
                stored = await client.produce(topic, batch)
                assert stored.error_code == code if code is not None else stored.error_code != 0
                assert stored.base_offset == -1
            assert (await client.produce("t", batch_of(b"fine, too"))).base_offset == 1

    run(main())


def test_keyed_record_on_a_compacted_topic_is_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", cleanup_policy="compact")
            client = await opened.connect()
            for codec in Codec:
                batch = build([Record(0, 1, b"key", b"value")], codec=codec)
                assert (await client.produce("t", batch)).error_code == 0
            mixed = build([Record(0, 1, b"key", b"value"), Record(1, 1, None, b"value")])
            assert (await client.produce("t", mixed)).error_code == ErrorCode.INVALID_RECORD

    run(main())


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_at_fault_are_named(codec: Codec, version: int, tmp_path: Path) -> None:
    keyless = [*range(0, 100, 10)]

    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", cleanup_policy="compact")
            client = await opened.connect()
            records = [
                Record(number, 1, None if number in keyless else b"key", b"value")
                for number in range(100)
            ]
            request = produce_request("t", build(records, codec=codec), acks=1)
            stored = produced(await client.ask(request, version))
            assert stored.error_code == ErrorCode.INVALID_RECORD
            assert opened.broker.topics.partition("t", 0).log.end_offset == 0
            if version >= 8:
                assert [each.batch_index for each in stored.record_errors] == keyless
                assert {each.batch_index_error_message for each in stored.record_errors} == {None}
                assert "every record needs a key" in (stored.error_message or "")

    run(main())


def test_records_too_far_from_now_are_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            bounds = {
                "message.timestamp.before.max.ms": "60000",
                "message.timestamp.after.max.ms": "30000",
            }
            stamped = {"message.timestamp.type": "LogAppendTime", **bounds}
            for name, overrides in (("t", bounds), ("stamped", stamped)):
                await opened.broker.topics.create(name, partitions=1, overrides=overrides)
            client = await opened.connect()
            now_ms = opened.broker.clock.now_ms()
            times = [now_ms, now_ms - 100_000, -1, now_ms + 100_000, now_ms + 1_000]
            records = [Record(n, time_ms, b"k", b"v") for n, time_ms in enumerate(times)]
            for codec in (Codec.NONE, Codec.LZ4):
                batch = build(records, codec=codec)
                stored = await client.produce("t", batch)
                assert stored.error_code == ErrorCode.INVALID_TIMESTAMP
                assert [each.batch_index for each in stored.record_errors] == [1, 3]
                assert (await client.produce("stamped", batch)).error_code == 0
            fine = build([Record(0, now_ms, b"k", b"v")])
            assert (await client.produce("t", fine)).error_code == 0

    run(main())


@pytest.mark.parametrize("compression_type", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_as_their_topic_says(compression_type: str, tmp_path: Path) -> None:
    codec = codec_of(compression_type)

    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", compression_type=compression_type)
            client = await opened.connect()
            # One after the other without a wait: those that are packed anew stay in order.
            for number, sent in enumerate(Codec):
                records = [Record(n, 7 + n, b"k", b"%d" % number * 50) for n in range(10)]
                batch = build(
                    records, codec=sent, producer_id=5, producer_epoch=0, base_sequence=10 * number
                )
                await client.begin(
                    produce_request("t", batch, acks=-1 if number % 2 else 1), VERSION
                )
            for number in range(len(Codec)):
                stored = produced(await client.receive())
                assert (stored.error_code, stored.base_offset) == (0, 10 * number)
            log = opened.broker.topics.partition("t", 0).log
            batches = [*split_batches(log.read(0, 1 << 20))]
            assert {header.codec for header, _ in batches} == {codec}
            assert [header.base_sequence for header, _ in batches] == [0, 10, 20, 30, 40]
            values = [record.value for _, batch in batches for record in records_in(batch)]
            assert values == [b"%d" % number * 50 for number in range(5) for _ in range(10)]

    run(main())


def test_batch_that_cannot_be_packed_anew_is_refused_as_ever(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", compression_type="zstd")
            client = await opened.connect()
            for batch, code in (
                (_damaged(), ErrorCode.CORRUPT_MESSAGE),
                (_miscounted(), ErrorCode.INVALID_RECORD),
                (bytearray(b"no batch"), ErrorCode.INVALID_RECORD),
            ):
                assert (await client.produce("t", batch)).error_code == code
            assert (await client.produce("t", batch_of(b"fine"))).base_offset == 0

    run(main())


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing_are_refused(acks: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            stored = await client.produce("t", batch_of(b"a"), acks=acks)
            assert stored.error_code == ErrorCode.INVALID_REQUIRED_ACKS

    run(main())


def test_one_request_for_many_partitions_is_answered_for_each(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", partitions=2)
            client = await opened.connect()
            data = [
                PartitionProduceData(index=number, records=bytes(batch_of(b"%d" % number)))
                for number in (0, 1, 2, 0)
            ]
            topics = [
                TopicProduceData(name="t", partition_data=data),
                TopicProduceData(name="missing", partition_data=data[:1]),
            ]
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
            answer: ProduceResponse = await client.ask(request, VERSION)
            told = [
                (p.index, p.error_code, p.base_offset)
                for topic in answer.responses
                for p in topic.partition_responses
            ]
            assert told == [(0, 0, 0), (1, 0, 0), (2, 3, -1), (0, 0, 1), (0, 3, -1)]

    run(main())


def test_time_of_append_is_told_where_the_log_sets_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", message_timestamp_type="LogAppendTime")
            client = await opened.connect()
            for batch in (batch_of(b"a"), idempotent_batch(0), idempotent_batch(1)):
                stored = await client.produce("t", batch)
                [*_, last] = read_all(opened.broker.topics.partition("t", 0).log)
                assert stored.log_append_time_ms == last.timestamp_ms
            await opened.topic("u")
            assert (await client.produce("u", batch_of(b"a"))).log_append_time_ms == -1

    run(main())


def test_number_written_with_more_bytes_than_it_needs_is_understood(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t")
            client = await opened.connect()
            batch = bytes(batch_of(b"a"))
            before = header(0, VERSION, 1) + b"\0\0\1\0\0\3\xe8" + b"\2\2t\2\0\0\0\0"
            size = varint(len(batch) + 1)
            longer = size[:-1] + bytes([size[-1] | 0x80, 0x80, 0])
            other = await opened.connect()
            for sender, written in ((other, size), (other, longer), (client, longer)):
                await sender.send(framed(before + written + batch + b"\0\0\0"))
                answer = await sender.receive_raw()
                assert struct.unpack_from(">h", answer, 5 + 1 + 2 + 1 + 4) == (0,)
            # The same beginning, and then a number that is too large.
            await client.send(framed(before + longer[:-1] + size + batch + b"\0\0\0"))
            assert await client.ended() == b""
            assert opened.broker.topics.partition("t", 0).log.end_offset == 3

    run(main())


class Twin:
    """A broker that requests are sent to without sockets, and all that came back.

    Each request comes through a connection of its own, so that nothing is remembered of another.
    """

    def __init__(self, opened: OpenDoor) -> None:
        self.answers: list[bytes] = []
        self._opened = opened

    async def send(self, frames: list[bytes], chance: random.Random) -> None:
        pairs = [DirectTransport.connect(self._opened.door, "twin") for _ in frames]
        for (transport, _), frame in zip(pairs, frames, strict=True):
            transport.feed(frame)
        await until(lambda: all(connection.is_idle for _, connection in pairs))
        for transport, _ in pairs:
            self.answers += transport.answers
            transport.hang_up()

    def logs(self) -> list[bytes]:
        return [
            bytes(partition.log.read(0, 1 << 24))
            for name in ("t", "u", "compacted")
            for partition in self._opened.broker.topics.get(name).partitions
            if partition.log.end_offset
        ]


class FastTwin(Twin):
    """Everything comes through one connection, in pieces."""

    def __init__(self, opened: OpenDoor) -> None:
        super().__init__(opened)
        self._transport, self._connection = DirectTransport.connect(opened.door, "twin")
        self.answers = self._transport.answers

    async def send(self, frames: list[bytes], chance: random.Random) -> None:
        for piece in _cut_up(chance, b"".join(frames)):
            self._transport.feed(piece)
        await until(lambda: self._connection.is_idle)

    def close(self) -> None:
        self._transport.hang_up()


def _random_frame(chance: random.Random, correlation_id: int, ids: dict[str, bytes]) -> bytes:
    version = chance.choice((3, 5, 7, 7, 8, 9, 9, 9, 11, 12, 13))
    name = chance.choice(("t", "t", "t", "u", "compacted", "missing"))
    topic = ids.get(name, bytes(15) + b"\1") if version >= 13 else name
    batch = chance.choice(
        (
            *(batch_of(b"x" * chance.choice((0, 1, 50, 70, 300))),) * 8,
            _marked(TRANSACTIONAL_BIT),
            _marked(CONTROL_BIT),
            _damaged(),
            bytearray(b"short"),
            batch_of(b"too large" * 300),
            idempotent_batch(chance.randrange(3)),
        )
    )
    request = produce_request(
        topic, batch, partition=chance.choice((0, 0, 0, 1, 2)), acks=chance.choice((1, 1, -1))
    )
    more: dict[str, Any] = {}
    if chance.random() < 0.1:
        request.unknown_tags = {7: b"seven"}
    if chance.random() < 0.1:
        request.topic_data[0].unknown_tags = {3: b""}
    if chance.random() < 0.1:
        more["tags"] = b"\1\5\1a"
    if chance.random() < 0.2:
        more["client_id"] = "another"
    return request_frame(request, version, correlation_id, **more)


def _cut_up(chance: random.Random, sent: bytes) -> list[bytes]:
    cuts = sorted(chance.randrange(len(sent)) for _ in range(chance.choice((0, 1, 5))))
    return [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_of_a_request_changes_no_answer_and_no_log(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requests to two brokers, one of which parses every one of them in full."""
    chance = random.Random(seed)
    parsed = 0

    def count_parsed(*args: Any) -> Any:
        nonlocal parsed
        parsed += 1
        return parse_request(*args)

    monkeypatch.setattr(produce, "parse_request", count_parsed)

    async def set_up(opened: OpenDoor) -> None:
        for name, more in (("t", {}), ("u", {}), ("compacted", {"cleanup_policy": "compact"})):
            await opened.topic(name, partitions=2, max_message_bytes="1500", **more)

    async def main() -> None:
        async with (
            open_door(tmp_path / "fast", dependencies=_counted_ids()) as fast_door,
            open_door(tmp_path / "slow", dependencies=_counted_ids()) as slow_door,
        ):
            await set_up(fast_door)
            await set_up(slow_door)
            fast, slow = FastTwin(fast_door), Twin(slow_door)
            ids = {t.name: t.topic_id for t in fast_door.broker.topics.all()}
            parsed_by_fast = 0
            for first in range(0, 1000, 50):
                frames: list[bytes] = []
                while len(frames) < 50:
                    frame = _random_frame(chance, first + len(frames), ids)
                    frames += [frame] * chance.choice((1, 1, 5))
                before = parsed
                await fast.send(frames, chance)
                parsed_by_fast += parsed - before
                await slow.send(frames, chance)
                assert fast.answers == slow.answers
            assert len(fast.answers) >= 1000
            assert parsed_by_fast < len(fast.answers) - 100
            assert parsed - parsed_by_fast == len(slow.answers)
            assert fast.logs() == slow.logs()
            fast.close()
            await asyncio.sleep(0)

    run(main())


def _counted_ids() -> Dependencies:
    """Gives the same ids to the topics of two brokers."""
    ids = itertools.count(2)
    return Dependencies(new_id=lambda: next(ids).to_bytes(16, "big"))
