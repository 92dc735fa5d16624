"""Messages of 100 bytes through the PyLogStreams door, on raw sockets.

What the broker spends on each: published with many in flight, delivered to a subscriber that reads
as fast as it can, and delivered to several at once. Then how long a message takes from producer to
subscriber when there is nothing else to do.

The bar is to be 1.5 times as thrifty as PyLogStreams' own broker (its commit 57f97af). That one is
not run here: its figures are constants, the best of four rounds of 50,000 messages that this
client once took of it on a machine of two cores, so the ratio holds for such a machine alone.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.server_process import connect

_PAYLOAD = b"x" * 100
_CHUNK_MESSAGES = 500
_SUBSCRIBERS = 4
_SEED_IN_US = 4.7
_SEED_OUT_US = 7.8
_THRIFT = 1.5
_PAUSE_S = 0.002
_START_S = 30


def measure(bench: Bench) -> list[Row]:
    messages = bench.load.messages or bench.scale.small_requests
    chunks = -(-messages // _CHUNK_MESSAGES)
    messages = chunks * _CHUNK_MESSAGES
    with (
        bench.place("pylogstreams") as directory,
        BrokerProcess(directory, has_pylogstreams=True) as broker,
    ):
        broker.until(lambda: _session(broker).close(), within_s=_START_S)
        topics = (f"bench-{number}" for number in count())
        _publish(broker, next(topics), 1)
        published = bench.best(lambda: _published(broker, next(topics), chunks))
        _publish(broker, "out", chunks)
        delivered = bench.best(lambda: _delivered(broker, "out", messages, 1))
        fanned_out = bench.best(lambda: _delivered(broker, "out", messages, _SUBSCRIBERS))
        latencies_s = _idle_latencies(broker, bench.scale.round_trips)
    return [
        _row("published, many in flight", published, messages, seed_us=_SEED_IN_US),
        _row("delivered to one subscriber", delivered, messages, seed_us=_SEED_OUT_US),
        Row(
            measure=f"delivered to {_SUBSCRIBERS} subscribers, each message",
            figure=fanned_out.server_cpu_s / (messages * _SUBSCRIBERS) * 1e6,
            unit="us CPU",
            details={"messages/s": messages * _SUBSCRIBERS / fanned_out.wall_s},
        ),
        Row(
            measure="from producer to idle subscriber, p99",
            figure=percentile(latencies_s, 99) * 1e3,
            unit="ms",
            bar=Bar(max_figure=5),
            details={"p50 ms": percentile(latencies_s, 50) * 1e3},
        ),
    ]


def _row(measure: str, usage: Usage, messages: int, *, seed_us: float) -> Row:
    return Row(
        measure=measure,
        figure=usage.server_cpu_s / messages * 1e6,
        unit="us CPU",
        compared_with="PyLogStreams' own, as once measured",
        comparison=seed_us,
        bar=Bar(max_ratio=round(1 / _THRIFT, 3)),
        details={"messages/s": messages / usage.wall_s},
    )


def _session(broker: BrokerProcess) -> socket.socket:
    """A connection with an id of its own."""
    connection = connect(broker.pylogstreams)
    connection.sendall(_frame(b"REG"))
    _receive(connection, 4 + 36)
    return connection


def _published(broker: BrokerProcess, topic: str, chunks: int) -> Usage:
    with ServerMeter(broker.pid) as meter:
        _publish(broker, topic, chunks)
    return meter.usage


def _publish(broker: BrokerProcess, topic: str, chunks: int) -> None:
    """Return when the broker has taken everything."""
    chunk = _publish_frame(topic) * _CHUNK_MESSAGES
    connection = _session(broker)
    for _ in range(chunks):
        connection.sendall(chunk)
    connection.sendall(bytes(4))
    assert not connection.recv(1), "an answer where none is due"
    connection.close()


def _delivered(broker: BrokerProcess, topic: str, messages: int, subscribers: int) -> Usage:
    size = messages * len(_delivery_frame(topic))
    with _sessions(broker, subscribers) as connections, ServerMeter(broker.pid) as meter:
        for connection in connections:
            connection.sendall(_frame(f"SUB {topic}".encode()))
        readers = [threading.Thread(target=_receive, args=(each, size)) for each in connections]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    return meter.usage


@contextmanager
def _sessions(broker: BrokerProcess, total: int) -> Iterator[list[socket.socket]]:
    """Connections of as many clients."""
    connections = [_session(broker) for _ in range(total)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def _idle_latencies(broker: BrokerProcess, messages: int) -> list[float]:
    """From before a message is sent until a subscriber has all of it, with pauses in between."""
    topic = "idle"
    size = len(_delivery_frame(topic))
    _publish(broker, topic, 1)
    latencies_s = []
    with _session(broker) as producer, _session(broker) as subscriber:
        subscriber.sendall(_frame(f"SUB {topic}".encode()))
        _receive(subscriber, _CHUNK_MESSAGES * size)
        for _ in range(messages):
            time.sleep(_PAUSE_S)
            begin_s = time.perf_counter()
            producer.sendall(_publish_frame(topic))
            _receive(subscriber, size)
            latencies_s.append(time.perf_counter() - begin_s)
    return latencies_s


def _receive(connection: socket.socket, size: int) -> None:
    buffer = memoryview(bytearray(min(size, 1 << 18)))
    while size:
        received = connection.recv_into(buffer[:size])
        assert received, "the broker closed the connection"
        size -= received


def _publish_frame(topic: str) -> bytes:
    content = f"PUB {topic} ".encode() + _PAYLOAD
    return _frame(content) + struct.pack(">I", zlib.crc32(_PAYLOAD))


def _delivery_frame(topic: str) -> bytes:
    return _frame(f"{topic} ".encode() + _PAYLOAD)


def _frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content
