"""What the metrics cost: producers, by counting; and everybody, while somebody looks at them.

The same requests go to a broker as it is and to one whose counting was taken out, in one run, in
turns. Counted in CPU time of the broker: requests that come by the hundred, as from a producer that
does not wait, and requests that come one by one, where nothing is shared between them.

A look at the metrics of a broker with 1,000 topics must be quick, and must not hold up a client of
Kafka who asks for something small meanwhile.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from contextlib import ExitStack
from functools import partial

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import create_topics
from benchmarks.kafka_wire import (
    KafkaConnection,
    ProduceAnswers,
    metadata_request,
    produce_request,
)
from benchmarks.pipeline import pipelined, up_to
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter
from benchmarks.stopwatch import Timing
from benchmarks.workload import batch_of

_TOPIC = "bench"
_CHUNK_REQUESTS = 100
_WINDOW_BYTES = 512 << 10
_WARM_REQUESTS = 2_000
_START_S = 30
_WITHOUT = "benchmarks.uncounted_broker"
_LOOKS = 10
_TOPICS_PER_REQUEST = 100


def measure(bench: Bench) -> list[Row]:
    return [*_counting(bench), *_looking(bench)]


# Counting


def _counting(bench: Bench) -> list[Row]:
    with ExitStack() as stack:
        sides = [
            _Side(stack, stack.enter_context(bench.place(f"metrics-{name}")), name)
            for name in ("millstream", _WITHOUT)
        ]
        small = -(-bench.scale.small_requests // _CHUNK_REQUESTS) * _CHUNK_REQUESTS
        single = bench.scale.round_trips
        return [
            _row(bench, sides, "one record per request, pipelined", small, _CHUNK_REQUESTS, _BAR),
            _row(bench, sides, "one record per request, one by one", single, 1, None),
        ]


# In the produce throughput of one run with and without.
_BAR = Bar(max_ratio=1.03)


class _Side:
    """A broker, and a connection to it."""

    def __init__(self, stack: ExitStack, directory: str, module: str) -> None:
        self._broker = stack.enter_context(BrokerProcess(directory, module=module))
        self._connection = connection = self._broker.connect()
        stack.callback(connection.close)
        self._broker.until(lambda: connection.create_topic(_TOPIC), within_s=_START_S)
        self.send(_WARM_REQUESTS, _CHUNK_REQUESTS)

    def timed(self, requests: int, at_once: int) -> Timing:
        with ServerMeter(self._broker.pid) as meter:
            self.send(requests, at_once)
        return Timing(meter.usage.wall_s, meter.usage.server_cpu_s)

    def send(self, requests: int, at_once: int) -> None:
        chunk = produce_request(_TOPIC, batch_of(), acks=1) * at_once
        answers = ProduceAnswers(_TOPIC)
        pipelined(
            self._connection.socket,
            chunk,
            chunk_messages=at_once,
            window=max(_WINDOW_BYTES // len(chunk), 1) if at_once > 1 else 1,
            more=up_to(requests),
            answered=answers.count,
        )
        answers.check()


def _row(
    bench: Bench, sides: list[_Side], name: str, requests: int, at_once: int, bar: Bar | None
) -> Row:
    ours, without = bench.race(*(partial(side.timed, requests, at_once) for side in sides))
    return Row(
        measure=f"metrics: {name}",
        figure=ours.cpu_s / requests * 1e6,
        unit="us CPU",
        compared_with="without metrics",
        comparison=without.cpu_s / requests * 1e6,
        bar=bar,
        details={
            "requests/s": requests / ours.wall_s,
            "without requests/s": requests / without.wall_s,
        },
    )


# Looking


def _looking(bench: Bench) -> list[Row]:
    topics = [f"topic-{number:04d}" for number in range(bench.scale.topics)]
    with (
        bench.place("metrics-looks") as directory,
        BrokerProcess(directory, has_http=True) as broker,
    ):
        bench.prepares("creating topics")
        for first in range(0, len(topics), _TOPICS_PER_REQUEST):
            create_topics(broker.address, topics[first : first + _TOPICS_PER_REQUEST])
        host, port = broker.http
        url = f"http://{host}:{port}/metrics"
        _look(url)
        took = [_look(url) for _ in bench.rounds(_LOOKS)]
        held = min(_longest_wait(broker.connect(), url) for _ in bench.rounds(_LOOKS))
    return [
        Row(
            measure=f"metrics: a look at {len(topics):,} topics",
            figure=min(took) * 1e3,
            unit="ms",
            bar=Bar(max_figure=100),
            details={"worst ms": max(took) * 1e3},
        ),
        Row(
            measure="metrics: longest wait of a Kafka client meanwhile",
            figure=held * 1e3,
            unit="ms",
            bar=Bar(max_figure=20),
        ),
    ]


def _look(url: str) -> float:
    began_s = time.perf_counter()
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own
        assert answer.read().startswith(b"# HELP")
    return time.perf_counter() - began_s


def _longest_wait(connection: KafkaConnection, url: str) -> float:
    """The slowest answer to something small, while somebody looks."""
    looking = threading.Thread(target=_look, args=(url,))
    request = metadata_request("topic-0000")
    longest_s = 0.0
    looking.start()
    while looking.is_alive():
        began_s = time.perf_counter()
        connection.ask(request)
        longest_s = max(longest_s, time.perf_counter() - began_s)
    connection.close()
    return longest_s
