"""What a transaction costs, against the same records of an idempotent producer without one.

The first figure is what the broker spends on one transaction at a time, of 1,000 records of 100
bytes. The second is the rate of a producer that sends as fast as it can and commits every
100 ms, against one that never commits. Both sides are confluent-kafka, in turns on one broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import reduce

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from benchmarks.bench import Bench
from benchmarks.broker_process import BrokerProcess
from benchmarks.confluent_clients import create_topics, servers
from benchmarks.percentile import percentile
from benchmarks.row import Bar, Row
from benchmarks.server_meter import ServerMeter, Usage
from benchmarks.server_process import Address
from benchmarks.workload import value_of

_TOPIC = "bench"
_MESSAGE_BYTES = 100
_RECORDS = 1_000
# One batch of librdkafka, so that both sides send what they send in one request.
_LINGER_MS = 5
_COMMIT_EVERY_S = 0.1
_WARM_TRANSACTIONS = 20
_POLL_EVERY = 1_000
# Few enough that a commit does not wait for much more than what 100 ms have brought.
_QUEUED_MESSAGES = 30_000
_FULL_S = 0.002
_WAIT_S = 60.0


def measure(bench: Bench) -> list[Row]:
    with bench.place("transactions") as directory, BrokerProcess(directory) as broker:
        create_topics(broker.address, [_TOPIC])
        with (
            _producer(broker.address) as plain,
            _producer(broker.address, transactional_id="bench") as transactional,
        ):
            transactional.init_transactions(_WAIT_S)
            value = value_of(_MESSAGE_BYTES)
            _warm(plain, transactional, value)
            return [
                _cost(bench, broker.pid, plain, transactional, value),
                _throughput(bench, broker.pid, plain, transactional, value),
            ]


def _cost(bench: Bench, pid: int, plain: Producer, transactional: Producer, value: bytes) -> Row:
    count = bench.scale.transactions
    commits_s: list[float] = []
    inside, outside = _race(
        bench,
        pid,
        lambda: commits_s.extend(_transactions(transactional, value, count)),
        lambda: _flushes(plain, value, count),
    )
    return Row(
        measure=f"transaction of {_RECORDS:,} records",
        figure=inside.server_cpu_s / count * 1e3,
        unit="ms CPU",
        compared_with="without one",
        comparison=outside.server_cpu_s / count * 1e3,
        # Of the transaction itself, without its records; with them it is stricter.
        bar=Bar(max_figure=10),
        details={
            "more than without ms CPU": (inside.server_cpu_s - outside.server_cpu_s) / count * 1e3,
            "commit p50 ms": percentile(commits_s, 50) * 1e3,
            "commit p99 ms": percentile(commits_s, 99) * 1e3,
            "with ms": inside.wall_s / count * 1e3,
            "without ms": outside.wall_s / count * 1e3,
        },
    )


def _throughput(
    bench: Bench, pid: int, plain: Producer, transactional: Producer, value: bytes
) -> Row:
    messages = bench.scale.transactional_messages
    commits_s: list[float] = []
    inside, outside = _race(
        bench,
        pid,
        lambda: commits_s.extend(_committing(transactional, value, messages)),
        lambda: _flowing(plain, value, messages),
    )
    return Row(
        measure=f"produce {_MESSAGE_BYTES} B with a commit every {_COMMIT_EVERY_S * 1e3:g} ms",
        figure=messages / inside.wall_s,
        unit="messages/s",
        compared_with="without",
        comparison=messages / outside.wall_s,
        bar=Bar(min_ratio=0.9),
        details={
            "commit p50 ms": percentile(commits_s, 50) * 1e3,
            "commits per run": len(commits_s) / _rounds(bench),
            "CPU s/GB": inside.server_cpu_s / (messages * _MESSAGE_BYTES) * 1e9,
            "without CPU s/GB": outside.server_cpu_s / (messages * _MESSAGE_BYTES) * 1e9,
            "client CPU s": inside.client_cpu_s,
            "without client CPU s": outside.client_cpu_s,
        },
    )


def _race(
    bench: Bench, pid: int, transactional: Callable[[], object], plain: Callable[[], object]
) -> tuple[Usage, Usage]:
    """The best of each, in rounds in which they take turns to begin."""
    contenders = (transactional, plain)
    runs: tuple[list[Usage], list[Usage]] = ([], [])
    for number in bench.rounds(_rounds(bench)):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            with ServerMeter(pid) as meter:
                contenders[place]()
            runs[place].append(meter.usage)
    return reduce(Usage.best, runs[0]), reduce(Usage.best, runs[1])


def _rounds(bench: Bench) -> int:
    # More than is usual: the rounds are short, and the bar leaves little room for chance.
    return 2 * bench.scale.server_rounds


def _warm(plain: Producer, transactional: Producer, value: bytes) -> None:
    _transactions(transactional, value, _WARM_TRANSACTIONS)
    _flushes(plain, value, _WARM_TRANSACTIONS)


def _transactions(producer: Producer, value: bytes, count: int) -> list[float]:
    """One after the other; how long each commit took, once all records were acknowledged."""
    commits_s = []
    for _ in range(count):
        producer.begin_transaction()
        _send(producer, value, _RECORDS)
        _flush(producer)
        begin_s = time.perf_counter()
        producer.commit_transaction(_WAIT_S)
        commits_s.append(time.perf_counter() - begin_s)
    return commits_s


def _flushes(producer: Producer, value: bytes, count: int) -> None:
    for _ in range(count):
        _send(producer, value, _RECORDS)
        _flush(producer)


def _committing(producer: Producer, value: bytes, messages: int) -> list[float]:
    """How long each commit took, which waits for the last records too."""
    commits_s = []
    sent = 0
    while sent < messages:
        producer.begin_transaction()
        deadline_s = time.perf_counter() + _COMMIT_EVERY_S
        while sent < messages and time.perf_counter() < deadline_s:
            some = min(_POLL_EVERY, messages - sent)
            _send(producer, value, some)
            sent += some
        begin_s = time.perf_counter()
        producer.commit_transaction(_WAIT_S)
        commits_s.append(time.perf_counter() - begin_s)
    return commits_s


def _flowing(producer: Producer, value: bytes, messages: int) -> None:
    for first in range(0, messages, _POLL_EVERY):
        _send(producer, value, min(_POLL_EVERY, messages - first))
    _flush(producer)


def _send(producer: Producer, value: bytes, count: int) -> None:
    """So many records, the last of them with a report."""
    produce = producer.produce
    left = count
    while left:
        try:
            while left > 1:
                produce(_TOPIC, value, partition=0)
                left -= 1
            produce(_TOPIC, value, partition=0, on_delivery=_delivered)
            left = 0
        except BufferError:
            producer.poll(_FULL_S)
    producer.poll(0)


def _flush(producer: Producer) -> None:
    if producer.flush(_WAIT_S):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _delivered(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _producer(address: Address, *, transactional_id: str | None = None) -> Producer:
    more = {"transactional.id": transactional_id} if transactional_id else {}
    return Producer(
        {
            **servers(address),
            **more,
            "enable.idempotence": True,
            "linger.ms": _LINGER_MS,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": _QUEUED_MESSAGES,
        }
    )
