"""What the door does when topics, disks and transactions do what they do."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.sending import NewRecord
from millstream.broker.topics import Topic, Topics
from millstream.errors import DiskFull, InvalidSetting, MillstreamError, StorageFailure
from millstream.gateways.pylogstreams import publishing
from millstream.settings.topics import TopicSettings
from millstream.storage.local_log import LocalLog
from tests.fakes.open_door import Runner, run, run_plainly, until
from tests.unit.gateways.pylogstreams.open_pylogstreams import (
    command_frame,
    open_pylogstreams,
    publish_frame,
)


@pytest.fixture(params=[run, run_plainly], ids=["uvloop", "asyncio"])
def on_loop(request: pytest.FixtureRequest) -> Runner:
    runner: Runner = request.param
    return runner


def test_order_holds_on_both_event_loops_also_for_a_slow_reader(
    tmp_path: Path, on_loop: Runner
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path, outgoing_max_messages=7) as opened:
            client = await opened.connect()
            client.send("SUB t")
            payload = b"x" * 10_000
            client.publish("t", *(b"%d %s" % (n, payload) for n in range(2_000)))
            # It reads nothing until all is stored, and then everything.
            await client.writer.drain()
            await until(lambda: _end(opened.broker.topics, "t") == 2_000)
            for number in range(2_000):
                assert await client.receive() == b"t %d %s" % (number, payload)
            await client.close()

    on_loop(play())


def test_refusal_resets_the_connection_on_both_event_loops(tmp_path: Path, on_loop: Runner) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect()
            client.publish("t", b"0")
            client.send("SUB t")
            assert await client.receive() == b"t 0"
            client.publish("no/topic", b"1")
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
            await client.close()
            await until(lambda: not opened.door.connections)
            orderly = await opened.connect()
            orderly.writer.write(bytes(4))
            assert await orderly.reader.read() == b""
            await orderly.close()

    on_loop(play())


def test_topic_that_cannot_be_created_takes_none_of_other_topics_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Topics.create

    async def refuse(self: Topics, name: str, **how: Any) -> Topic:
        if name == "bad":
            raise InvalidSetting(name="max.message.bytes", value=1, expected="something else")
        return await create(self, name, **how)

    monkeypatch.setattr(Topics, "create", refuse)

    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect()
            names = ("a", "bad", "b")
            client.writer.write(b"".join(publish_frame(name, b"0") for name in names))
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
            await client.close()
            assert [_end(opened.broker.topics, name) for name in ("a", "b")] == [1, 1]

    run(play())


def test_no_more_than_the_outgoing_messages_are_unsent(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path, outgoing_max_messages=3) as opened:
            client = await opened.connect("me")
            client.send("SUB t")
            large = b"x" * 1_000_000
            for _ in range(20):
                client.publish("t", large)
                await client.writer.drain()
            await until(lambda: _end(opened.broker.topics, "t") == 20)
            [connection] = opened.door.connections
            unsent = connection._transport.get_write_buffer_size()
            assert unsent <= 3 * 1_001_000
            for _ in range(20):
                assert await client.receive() == b"t " + large
            await client.close()

    run(play())


def test_position_is_not_committed_past_what_the_socket_has_taken(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path, outgoing_max_messages=1) as opened:
            client = await opened.connect("me")
            client.send("SUB t")
            client.publish("t", *[b"x" * 4_000_000] * 10)
            await client.writer.drain()
            await until(lambda: _end(opened.broker.topics, "t") == 10)
            await opened.door.sessions.commit()
            held = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            assert held["t", 0].offset < 9 if held else True
            again = await opened.connect("me")
            again.send("SUB t")
            first_left = held["t", 0].offset if held else 0
            for _ in range(first_left, 10):
                assert await again.receive() is not None
            await until(lambda: opened.door.sessions._sessions["me"].positions["t", 0] == 10)
            await opened.door.sessions.commit()
            done = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            assert done["t", 0].offset == 10
            await again.close()
            await client.close()

    run(play())


def test_a_full_disk_slows_a_producer_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = True
    append = LocalLog.append

    def refuse(log: LocalLog, batches: list[bytearray]) -> list[int | MillstreamError]:
        if is_full and log.name.startswith("t/"):
            return [DiskFull("disk")] * len(batches)
        return append(log, batches)

    monkeypatch.setattr(publishing, "RETRY_S", 0.01)
    monkeypatch.setattr(LocalLog, "append", refuse)

    async def play() -> None:
        nonlocal is_full
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect()
            client.send("SUB t")
            client.publish("t", *(str(n).encode() for n in range(5_000)))
            await until(lambda: any(not c.is_idle for c in opened.door.connections))
            await asyncio.sleep(0.1)
            is_full = False
            for number in range(5_000):
                assert await client.receive() == f"t {number}".encode()
            await client.close()

    run(play())


def test_a_failed_disk_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = LocalLog.append

    def fail(log: LocalLog, batches: list[bytearray]) -> list[int | MillstreamError]:
        if log.name.startswith("t/"):
            return [StorageFailure(path="t/0", operation="append", reason="broken")]
        return append(log, batches)

    monkeypatch.setattr(LocalLog, "append", fail)

    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect()
            client.publish("t", b"lost")
            assert await client.receive() is None
            await client.close()

    run(play())
    assert "broken" in caplog.text


def test_a_topic_that_is_deleted_and_comes_again_is_delivered_from_its_beginning(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect("me")
            client.send("SUB t")
            client.publish("t", b"old", b"old")
            assert await client.frames(2) == [b"t old"] * 2
            await opened.broker.topics.delete("t")
            client.publish("t", b"new")
            assert await client.receive() == b"t new"
            await opened.door.sessions.commit()
            held = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            assert held["t", 0].offset == 1
            await client.close()

    run(play())


def test_all_partitions_are_delivered_and_a_client_keeps_to_one_of_them(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            await opened.broker.topics.create("t", partitions=3, overrides={})
            client = await opened.connect("me")
            client.send("SUB t")
            for number in range(3):
                await opened.broker.sender.send("t", NewRecord(b"own", partition=number))
            assert await client.frames(3) == [b"t own"] * 3
            client.publish("t", *(str(n).encode() for n in range(1_000)))
            assert await client.frames(1_000) == [f"t {n}".encode() for n in range(1_000)]
            await opened.broker.topics.add_partitions("t", 5)
            await opened.broker.sender.send("t", NewRecord(b"more", partition=4))
            assert await client.receive() == b"t more"
            await client.close()

    run(play())


def test_records_without_a_value_are_empty_messages(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect()
            client.send("SUB t")
            await opened.broker.sender.send("t", NewRecord(None, key=b"key"))
            assert await client.receive() == b"t "
            await client.close()

    run(play())


def test_what_retention_took_is_skipped(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            for number in range(5):
                await opened.broker.sender.send("t", NewRecord(str(number).encode()))
            partition = opened.broker.topics.partition("t", 0)
            await opened.broker.topics.delete_records(partition, 3)
            client = await opened.connect()
            client.send("SUB t")
            assert await client.frames(2) == [b"t 3", b"t 4"]
            client.send("SET t 0")
            assert await client.frames(2) == [b"t 3", b"t 4"]
            await client.close()

    run(play())


def test_topics_are_not_created_where_that_is_not_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        topics = TopicSettings(auto_create=False)
        async with open_pylogstreams(tmp_path, topics=topics) as opened:
            client = await opened.connect()
            client.publish("t", b"message")
            assert await client.receive() is None
            assert "t" not in {topic.name for topic in opened.broker.topics.all()}
            await client.close()

    run(play())
    assert "there is no topic 't'" in caplog.text


def test_a_compacted_topic_takes_nothing_without_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            overrides = {"cleanup.policy": "compact"}
            await opened.broker.topics.create("t", partitions=1, overrides=overrides)
            client = await opened.connect()
            client.publish("t", b"message")
            assert await client.receive() is None
            await client.close()

    run(play())
    assert "every record needs a key" in caplog.text


def test_a_message_too_large_for_its_topic_is_refused_and_those_before_it_are_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            overrides = {"max.message.bytes": "1000"}
            await opened.broker.topics.create("t", partitions=1, overrides=overrides)
            client = await opened.connect()
            client.publish("t", *[b"x" * 300] * 10, b"x" * 2_000, b"after")
            assert await client.receive() is None
            assert _end(opened.broker.topics, "t") == 10
            await client.close()

    run(play())
    assert "max.message.bytes" in caplog.text


def test_positions_in_use_are_renewed(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect("me")
            client.send("SUB t")
            client.publish("t", b"message")
            await client.receive()
            await until(lambda: opened.door.sessions._sessions["me"].positions)
            await opened.door.sessions.commit()
            before = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            await asyncio.sleep(0.01)
            opened.door.sessions.renew()
            await opened.door.sessions.commit()
            after = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            assert after["t", 0].offset == before["t", 0].offset == 1
            assert after["t", 0] != before["t", 0]
            await client.close()

    run(play())


def test_sessions_of_clients_that_left_are_not_kept(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            for number in range(20):
                client = await opened.connect(f"client {number}")
                client.send("SUB t")
                client.publish("t", b"message")
                await client.receive()
                await client.close()
            await until(lambda: not opened.door.connections)
            await until(lambda: not opened.door.sessions._sessions)
            assert not opened.door.subscribers
            assert not opened.broker.topics.partition("t", 0).waiters

    run(play())


def test_one_connection_too_many_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path, max_connections=1) as opened:
            first = await opened.connect()
            second = await opened.connect("other")
            assert await second.receive() is None
            first.publish("t", b"fine")
            first.send("SUB t")
            assert await first.receive() == b"t fine"
            await first.close()
            await second.close()

    with caplog.at_level(logging.WARNING):
        run(play())
    assert "max.connections" in caplog.text


def test_what_was_received_is_worked_off_after_the_client_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect("me")
            await until(lambda: "me" in opened.door.sessions._sessions)
            client.writer.write(_ten_topics())
            await until(lambda: _end(opened.broker.topics, "t0") >= 0)
            for connection in opened.door.connections:
                connection._transport.abort()
            await until(lambda: not opened.door.connections)
            await until(lambda: _end(opened.broker.topics, "t9") == 2)
            await until(lambda: not opened.door.sessions._sessions)
            held = await opened.broker.groups.fetch_offsets("pylogstreams.me")
            assert held["t9", 0].offset == 1
            assert len(held) == 10
            await client.close()

    run(play())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_what_was_received_is_stored_when_the_door_closes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            client = await opened.connect("me")
            await until(lambda: "me" in opened.door.sessions._sessions)
            client.writer.write(_ten_topics())
            await until(lambda: _end(opened.broker.topics, "t0") >= 0)
            await opened.door.close()
            assert _end(opened.broker.topics, "t9") == 2
            await client.close()

    run(play())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_rubbish_ends_its_connection_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rubbish = random.Random(7)
    commands = [b"REG", b"CID x", b"SUB t", b"SET t 0", b"PUB t 1", b"PNG", b"", b"\xff", b"PUB"]

    def part() -> bytes:
        content = rubbish.choice(commands) + rubbish.randbytes(rubbish.choice([0, 0, 0, 3]))
        size = rubbish.choice([len(content)] * 5 + [rubbish.randrange(40)])
        return size.to_bytes(4, "big") + content

    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            for number in range(300):
                client = await opened.connect(f"client {number}")
                client.writer.write(b"".join(part() for _ in range(rubbish.randrange(1, 30))))
                client.writer.write_eof()
                while await client.receive() is not None:
                    pass
                await client.close()
            good = await opened.connect()
            good.publish("good", b"fine")
            good.send("SUB good")
            assert await good.receive() == b"good fine"
            await good.close()

    run(play())
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


def _ten_topics() -> bytes:
    """Messages for topics each of which has to be created first, and commands in between."""
    return b"".join(
        publish_frame(f"t{n}", b"0")
        + publish_frame(f"t{n}", b"1")
        + command_frame(f"SUB t{n}")
        + command_frame(f"SET t{n} 1")
        for n in range(10)
    )


def _end(topics: Topics, name: str) -> int:
    try:
        return topics.partition(name, 0).log.end_offset
    except MillstreamError:
        return -1


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "this looks like TLS; this listener has none"),
        (b"GET / HTTP/1.1\r\n\r\n", "this looks like HTTP; this listener speaks PyLogStreams"),
    ],
)
def test_client_of_another_protocol_is_recognised(
    sent: bytes, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with open_pylogstreams(tmp_path) as opened:
            _, writer = await asyncio.open_connection("127.0.0.1", opened.port)
            writer.write(sent)
            await until(lambda: reason in caplog.text)
            writer.close()

    run(play())
