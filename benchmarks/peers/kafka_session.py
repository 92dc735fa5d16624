"""A broker that speaks Kafka's protocol, ours or another: one topic of one partition.

Messages come in batches of about 1 MB, as every client of a busy producer makes them.
"""

from __future__ import annotations

from benchmarks.kafka_wire import (
    KafkaConnection,
    ProduceAnswers,
    fetch_request,
    fetched,
    produce_request,
)
from benchmarks.pipeline import More, pipelined, up_to
from benchmarks.server_process import ServerProcess
from benchmarks.workload import batch_of_value

_TOPIC = "bench"
_BATCH_BYTES = 1_000_000
# What a record takes besides its value, at most.
_RECORD_BYTES = 12
_FETCH_BYTES = 4 << 20
_WINDOW = 4
_START_S = 60


class KafkaSession:
    """Uses the topic over one connection."""

    def __init__(
        self, server: ServerProcess, connection: KafkaConnection, value: bytes, *, acks: int
    ) -> None:
        server.until(lambda: connection.create_topic(_TOPIC), within_s=_START_S)
        self.pid = server.pid
        self._connection = connection
        self._batch_messages = max(_BATCH_BYTES // (len(value) + _RECORD_BYTES), 1)
        batch = batch_of_value(value, records=self._batch_messages)
        self._request = produce_request(_TOPIC, batch, acks=acks)
        self._alone = produce_request(_TOPIC, batch_of_value(value, records=1), acks=acks)
        server.until(self.produce_one, within_s=_START_S)

    def produce(self, more: More) -> int:
        return self._send(self._request, self._batch_messages, more)

    def produce_one(self) -> None:
        self._send(self._alone, 1, up_to(1))

    def consume(self, messages: int) -> int:
        done = offset = 0
        while done < messages:
            request = fetch_request(_TOPIC, offset, max_bytes=_FETCH_BYTES)
            count, offset = fetched(self._connection.ask(request), _TOPIC)
            done += count
        return done

    def _send(self, request: bytes, messages: int, more: More) -> int:
        answers = ProduceAnswers(_TOPIC, request_messages=messages)
        sent = pipelined(
            self._connection.socket,
            request,
            chunk_messages=messages,
            window=_WINDOW,
            more=more,
            answered=answers.count,
        )
        answers.check()
        return sent
