"""Messages on their way to a topic: shared out to partitions, packed into batches, sent.

A message goes to the partition that it names, or to that of its key, by Kafka's rule. Others fill
one batch for one partition, and the next for the next.

Invariant: with `acks=all` the batches have sequences, so that what one partition is sent stays in
order, and a batch whose answer was lost is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from millstream.broker.partitioner import partition_of
from millstream.cli.message_input import Headers, Outgoing, Piece
from millstream.client.kafka import Cluster, ProducerIdentity
from millstream.clock import Clock
from millstream.errors import UnknownPartition
from millstream.records import Codec, Record, build
from millstream.records.pair_batch import build_pairs

_NOBODY = ProducerIdentity(-1, -1)
_RECORD_BYTES = 20
"""About what a record takes beside its key and value."""
_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How messages are sent."""

    topic: str
    partition: int | None = None
    key: bytes | None = None
    headers: Headers = ()
    codec: Codec = Codec.NONE
    acks: int = -1
    batch_messages: int
    batch_bytes: int


@dataclass(slots=True)
class _Waiting:
    """Messages of one partition that are no batch yet."""

    messages: list[Outgoing] = field(default_factory=list)
    size: int = 0


class Outbox:
    """Sends messages of one topic."""

    def __init__(self, cluster: Cluster, sending: Sending, clock: Clock) -> None:
        self._sending = sending
        self._clock = clock
        self._count = len(cluster.partitions([sending.topic])[sending.topic])
        if sending.partition is not None:
            self._check(sending.partition)
        self._identity = cluster.transactions.identity() if sending.acks == -1 else _NOBODY
        self._producer = cluster.producer(acks=sending.acks)
        self._sequences: dict[int, int] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._turn = 0
        self._partition_of = lru_cache(maxsize=65536)(partition_of)
        self.counts: dict[int, int] = {}
        """By partition, how many messages were given to the broker."""

    def add(self, piece: Piece) -> None:
        """Send what fills batches; the rest waits. Raises Unavailable, RefusedByBroker."""
        if piece.values:
            self._add_values(piece.values)
        for message in piece.messages:
            self._add(message)

    def push(self) -> None:
        """Send what waits."""
        for number in list(self._waiting):
            self._send(number)

    def flush(self) -> None:
        """Return when all is stored."""
        self.push()
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()

    def _add_values(self, values: Sequence[bytes | None]) -> None:
        sending = self._sending
        if sending.headers or sending.key is not None:
            for value in values:
                self._add(Outgoing(value))
            return
        for batch in _cut(values, sending.batch_messages, sending.batch_bytes):
            number = self._next_turn() if sending.partition is None else sending.partition
            self._send_batch(number, None, batch)

    def _add(self, message: Outgoing) -> None:
        sending = self._sending
        if message.key is None and sending.key is not None:
            message = message._replace(key=sending.key)
        if sending.headers:
            message = message._replace(headers=(*sending.headers, *message.headers))
        number = self._number_of(message)
        waiting = self._waiting.get(number)
        if waiting is None:
            waiting = self._waiting[number] = _Waiting()
        size = len(message.value or b"") + len(message.key or b"") + _RECORD_BYTES
        if message.headers:
            size += sum(len(name) + len(value or b"") + 4 for name, value in message.headers)
        if waiting.messages and waiting.size + size > sending.batch_bytes:
            self._send(number)
            waiting = self._waiting[number] = _Waiting()
        waiting.messages.append(message)
        waiting.size += size
        if len(waiting.messages) >= sending.batch_messages:
            self._send(number)

    def _number_of(self, message: Outgoing) -> int:
        if message.partition is not None:
            self._check(message.partition)
            return message.partition
        if self._sending.partition is not None:
            return self._sending.partition
        if message.key is not None:
            return self._partition_of(message.key, self._count)
        return self._turn % self._count

    def _check(self, number: int) -> None:
        if number >= self._count:
            raise UnknownPartition(self._sending.topic, number, count=self._count)

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn % self._count

    def _send(self, number: int) -> None:
        messages = self._waiting.pop(number).messages
        if number == self._turn % self._count:
            self._turn += 1
        if any(each.headers or each.timestamp_ms is not None for each in messages):
            self._send_records(number, messages)
        else:
            self._send_batch(
                number, [each.key for each in messages], [each.value for each in messages]
            )

    def _send_batch(
        self, number: int, keys: Sequence[bytes | None] | None, values: Sequence[bytes | None]
    ) -> None:
        batch = build_pairs(
            keys,
            values,
            timestamp_ms=self._clock.now_ms(),
            codec=self._sending.codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._sequence(number, len(values)),
        )
        self._hand_over(number, batch, len(values))

    def _send_records(self, number: int, messages: Sequence[Outgoing]) -> None:
        now_ms = self._clock.now_ms()
        records = [
            Record(
                offset,
                now_ms if each.timestamp_ms is None else each.timestamp_ms,
                each.key,
                each.value,
                each.headers,
            )
            for offset, each in enumerate(messages)
        ]
        batch = build(
            records,
            codec=self._sending.codec,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=self._sequence(number, len(records)),
        )
        self._hand_over(number, batch, len(records))

    def _sequence(self, number: int, count: int) -> int:
        if self._identity is _NOBODY:
            return -1
        sequence = self._sequences.get(number, 0)
        self._sequences[number] = (sequence + count) % _SEQUENCES
        return sequence

    def _hand_over(self, number: int, batch: bytearray, count: int) -> None:
        self._producer.send((self._sending.topic, number), bytes(batch))
        self.counts[number] = self.counts.get(number, 0) + count


def _cut(
    values: Sequence[bytes | None], most: int, most_bytes: int
) -> list[Sequence[bytes | None]]:
    """Values in runs that are batches; each has at least one."""
    total = sum(map(len, filter(None, values))) + len(values) * _RECORD_BYTES
    if len(values) <= most and total <= most_bytes:
        return [values]
    if len(values) == 1:
        return [values]
    middle = len(values) // 2
    return [*_cut(values[:middle], most, most_bytes), *_cut(values[middle:], most, most_bytes)]
