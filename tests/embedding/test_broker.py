"""A broker inside a test: how it starts, what it holds, what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer

from millstream.errors import (
    AlreadyExists,
    BrokerNotRunning,
    BrokerProcessFailed,
    DirectoryLocked,
    InvalidSetting,
    NotForThisBroker,
    TimedOut,
    Unavailable,
    UnknownTopic,
)
from millstream.testing import AsyncBroker, Broker, Message
from tests.fakes.patience import HANG_S


def send(broker: Broker, topic: str, *values: str) -> None:
    """As an application does: with acks=all."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(HANG_S) == 0


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [message.value for message in broker.messages(topic)]


def test_broker_holds_what_clients_and_tests_put_into_it() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, config={"max.message.bytes": 100_000})
        assert broker.produce("orders", "a", key="k", headers={"h": "v"}, partition=1) == (1, 0)
        send(broker, "greetings", "hello")
        assert broker.topics() == ["greetings", "orders"]
        assert broker.end_offsets("orders") == {0: 0, 1: 1}
        [message] = broker.messages("orders")
        expected = Message(b"a", b"k", (("h", b"v"),), 1, 0, message.timestamp_ms)
        assert message == expected
        assert values(broker, "greetings") == [b"hello"]
        answer = httpx.get(f"{broker.http_url}/topics/orders", timeout=HANG_S)
        assert answer.json()["name"] == "orders"
        with pytest.raises(AlreadyExists):
            broker.create_topic("orders")
        with pytest.raises(UnknownTopic):
            broker.messages("nothing")
        with pytest.raises(TimedOut, match="5 messages of topic 'greetings', which has 1,"):
            broker.messages("greetings", at_least=5, timeout_s=0.05)
        broker.reset()
        assert broker.topics() == []


def test_dashboard_of_a_broker_in_memory_is_served(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        broker.produce("orders", "one")
        views = ("overview", "topics", "groups", "queues", "pipelines", "connections")
        for view in views:
            address = f"{broker.http_url}/api/events?view={view}"
            with httpx.stream("GET", address, timeout=HANG_S) as answer:
                assert f"event: {view}" in answer.iter_lines()
    assert caplog.records == []


def test_brokers_live_side_by_side() -> None:
    with Broker() as one, Broker() as two:
        one.produce("orders", "of one")
        two.produce("orders", "of two")
        assert values(one, "orders") == [b"of one"]
        assert values(two, "orders") == [b"of two"]
        assert one.bootstrap_servers != two.bootstrap_servers


def test_broker_leaves_nothing_behind_and_touches_nothing_of_its_process() -> None:
    with Broker() as broker:  # What is imported late is there from now on.
        httpx.get(broker.http_url, timeout=HANG_S)
    gc.collect()  # What other tests have left goes now, and not while this one counts.
    files = len(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())

    def settings_of_the_process() -> list[object]:
        handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        return [*handlers, limits, sys.getswitchinterval(), logging.getLogger().handlers[:]]

    before = settings_of_the_process()
    with Broker() as broker:
        send(broker, "orders", "one")
        assert httpx.get(broker.http_url, timeout=HANG_S).status_code == 200
        assert settings_of_the_process() == before
    assert settings_of_the_process() == before
    assert set(threading.enumerate()) == threads
    assert len(os.listdir("/proc/self/fd")) == files


def test_broker_in_memory_keeps_its_data_and_address_when_restarted() -> None:
    with Broker() as broker:
        send(broker, "orders", "one")
        address = broker.bootstrap_servers
        broker.restart()
        assert broker.bootstrap_servers == address
        send(broker, "orders", "two")
        assert values(broker, "orders") == [b"one", b"two"]


def test_broker_in_memory_that_was_stopped_begins_anew() -> None:
    broker = Broker()
    with broker:
        broker.produce("orders", "one")
        broker.clock.advance(seconds=3600)
    with broker:
        assert broker.topics() == []
        assert broker.clock.moved_ms == 0


def test_killed_broker_has_all_that_it_acknowledged(tmp_path: Path) -> None:
    with Broker(isolated=True, directory=tmp_path) as broker:
        send(broker, "orders", "one", "two")
        broker.clock.advance(seconds=3600)
        moved_ms = broker.clock.now_ms()
        broker.kill()
        with pytest.raises(BrokerNotRunning):
            broker.topics()
        broker.restart()
        assert values(broker, "orders") == [b"one", b"two"]
        assert broker.clock.now_ms() >= moved_ms
        fault = broker.faults.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        send(broker, "orders", "three")
        assert fault.hits == 1
        with pytest.raises(UnknownTopic, match="there is no topic 'nothing'"):
            broker.messages("nothing")
    # And the directory can be had by another kind of broker.
    with Broker(directory=tmp_path) as broker:
        assert values(broker, "orders") == [b"one", b"two", b"three"]


@pytest.mark.parametrize("isolated", [False, True])
def test_what_keeps_a_broker_from_starting_is_raised(tmp_path: Path, isolated: bool) -> None:
    with (
        Broker(directory=tmp_path),
        pytest.raises(DirectoryLocked, match="process"),
        Broker(directory=tmp_path, isolated=isolated),
    ):
        pass
    with pytest.raises(InvalidSetting, match="did you mean"):
        Broker(isolated=isolated, settings={"auto.create.topic.enable": False}).start()


def test_settings_are_the_brokers_own() -> None:
    settings = {"auto.create.topics.enable": False, "num.partitions": 3}
    with Broker(settings=settings) as broker:
        broker.create_topic("payments", partitions=-1)
        assert broker.end_offsets("payments") == {0: 0, 1: 0, 2: 0}
        with pytest.raises(UnknownTopic):
            broker.produce("orders", "one")


def test_what_a_broker_is_not_made_for_is_told() -> None:
    broker = Broker()
    with pytest.raises(BrokerNotRunning, match="with Broker"):
        _ = broker.bootstrap_servers
    with pytest.raises(NotForThisBroker, match="isolated=True"):
        broker.kill()
    with pytest.raises(InvalidSetting, match="takes free ports"):
        Broker(settings={"listeners": "127.0.0.1:9092"})
    with pytest.raises(NotForThisBroker, match="its data would be gone"):
        Broker(isolated=True).restart()


def test_process_that_dies_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    with Broker(isolated=True, directory=tmp_path) as broker:
        failures: list[BaseException] = []

        begun = threading.Event()

        def wait() -> None:
            begun.set()
            try:
                broker.messages("orders", at_least=1, timeout_s=HANG_S)
            except BrokerProcessFailed as failure:
                failures.append(failure)

        waiting = threading.Thread(target=wait)
        waiting.start()
        begun.wait()
        broker.topics()
        broker.kill()
        waiting.join(HANG_S)
        assert [str(each) for each in failures] == [
            "the process of the broker has failed: it has ended; its stderr may say more"
        ]


def test_async_broker_serves_clients_on_the_loop_of_the_test() -> None:
    async def main() -> None:
        async with AsyncBroker() as broker:
            await broker.create_topic("orders")
            servers = broker.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
                await producer.send_and_wait("orders", b"one")
            await broker.produce("orders", "two")
            consumer = AIOKafkaConsumer(
                "orders", bootstrap_servers=servers, auto_offset_reset="earliest", group_id="g"
            )
            async with consumer:
                received = [(await consumer.getone()).value for _ in range(2)]
                await consumer.commit()
            assert received == [b"one", b"two"]
            assert [
                m.value for m in await broker.messages("orders", at_least=2, timeout_s=HANG_S)
            ] == received
            assert await broker.end_offsets("orders") == {0: 2}
            assert await broker.committed("g") == {("orders", 0): 2}
            await broker.restart()
            assert await broker.topics() == ["orders"]
            await broker.reset()
            assert await broker.topics() == []

    asyncio.run(main())


@pytest.mark.parametrize("isolated", [False, True])
def test_fork_cannot_use_the_broker_and_harms_none(name: str, isolated: bool) -> None:
    with Broker(isolated=isolated) as broker:
        broker.create_topic(name)
        child = os.fork()
        if child == 0:
            try:
                broker.produce(name, "of the child")
            except Unavailable:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        broker.produce(name, "of the parent")
        assert [message.value for message in broker.messages(name)] == [b"of the parent"]
