"""The PyLogStreams door under clients that are slow, silent, fast or many."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.seeds.conftest import StartBroker
from tests.seeds.raw_pylogstreams import RawClient

pytestmark = pytest.mark.system

MIB = 1024**2
PAYLOAD = b"x" * 1000
SILENCES = 10
# The clocks of event loops have steps.
SLACK_S = 0.1


def registered(broker: BrokerProcess) -> RawClient:
    client = RawClient(broker.pylogstreams_port)
    client.register()
    return client


def allowed_silence(seconds: float) -> str:
    """Settings of a broker that drops a client after this time; it is four heartbeats."""
    return f"[pylogstreams]\nheartbeat.ms = {seconds * 250:.0f}\nheartbeat.missed.max = 4\n"


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell")


def test_a_reader_that_stops_costs_little_delays_nobody_and_gets_everything(
    start_broker: StartBroker, name: str
) -> None:
    broker = start_broker(http="off")
    messages = 60_000
    sent = [b"%d %s" % (number, PAYLOAD) for number in range(messages)]
    with registered(broker) as producer, registered(broker) as stopped, registered(broker) as other:
        stopped.subscribe(name)
        other.subscribe(name)
        producer.publish(name, sent[0])
        assert other.payloads(name, 1) == sent[:1]
        before = resident_bytes(broker.pid)
        publishing = threading.Thread(target=producer.publish, args=(name, *sent[1:]))
        publishing.start()
        assert other.payloads(name, messages - 1) == sent[1:]
        publishing.join()
        assert resident_bytes(broker.pid) - before < 50 * MIB, "60 MB were published"
        assert stopped.payloads(name, messages) == sent
    assert broker.complaints() == []


def test_a_client_that_never_reads_can_still_publish(broker: BrokerProcess, name: str) -> None:
    sent = [b"%d %s" % (number, PAYLOAD) for number in range(30_000)]
    with registered(broker) as client:
        client.subscribe(name)
        client.publish(name, *sent)
        assert client.payloads(name, len(sent)) == sent


def test_many_producers_at_once_lose_nothing_and_each_keeps_its_order(
    broker: BrokerProcess, name: str
) -> None:
    producers, messages = 16, 2_000

    def produce(number: int) -> None:
        with registered(broker) as producer:
            for part in range(0, messages, 100):
                payloads = [b"%d %d" % (number, n) for n in range(part, part + 100)]
                producer.publish(name, *payloads)
            producer.finish()

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    with registered(broker) as subscriber:
        subscriber.subscribe(name)
        seen: dict[int, list[int]] = {number: [] for number in range(producers)}
        for payload in subscriber.payloads(name, producers * messages):
            producer, number = map(int, payload.split())
            seen[producer].append(number)
    for thread in threads:
        thread.join()
    assert all(numbers == list(range(messages)) for numbers in seen.values())


def test_a_silent_client_is_dropped_and_one_with_a_heartbeat_is_not(
    start_broker: StartBroker, name: str
) -> None:
    # So long that no busy machine misses it.
    broker = start_broker(allowed_silence(3.0), http="off")
    with registered(broker) as silent, registered(broker) as alive:
        silent_since_s = time.monotonic()
        silent.subscribe(name)

        def wait() -> None:
            assert silent.is_closed()
            assert time.monotonic() - silent_since_s > 3.0 - SLACK_S, "it was dropped too early"

        with ThreadPoolExecutor(1) as waiters:
            waiting = waiters.submit(wait)
            while not waiting.done():
                alive.ping()
                time.sleep(0.05)
            waiting.result()
        alive.subscribe(name)
        alive.publish(name, b"alive")
        assert alive.payloads(name, 1) == [b"alive"]
    [complaint] = broker.complaints()
    assert "nothing was heard" in complaint


def test_who_gets_messages_but_says_nothing_is_silent(start_broker: StartBroker, name: str) -> None:
    broker = start_broker(allowed_silence(2.0), http="off")
    # A busy machine may deliver too few messages within the silence.
    received, attempts = 0, SILENCES
    while received <= 2:
        assert attempts, "too few messages are delivered before the end"
        attempts -= 1
        with registered(broker) as silent, registered(broker) as producer:
            silent_since_s = time.monotonic()
            silent.subscribe(name)
            received = 0
            with suppress(ConnectionResetError):
                producer.publish(name, b"news")
                while silent.receive() is not None:
                    received += 1
                    time.sleep(0.005)
                    producer.publish(name, b"news")
            assert time.monotonic() - silent_since_s > 2.0 - SLACK_S, "it was dropped too early"


def test_many_topics_on_one_connection_are_kept_apart(broker: BrokerProcess, name: str) -> None:
    topics = [f"{name}-{number}" for number in range(200)]
    with registered(broker) as producer, registered(broker) as subscriber:
        for topic in topics:
            subscriber.subscribe(topic)
            producer.publish(topic, b"1 " + topic.encode(), b"2 " + topic.encode())
        seen: dict[str, list[bytes]] = {topic: [] for topic in topics}
        for _ in range(2 * len(topics)):
            frame = subscriber.receive()
            assert frame is not None
            topic, payload = frame.decode().split(" ", 1)
            seen[topic].append(payload.encode())
    assert all(seen[t] == [b"1 " + t.encode(), b"2 " + t.encode()] for t in topics)
