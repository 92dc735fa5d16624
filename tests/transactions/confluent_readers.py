"""Workers that read with librdkafka: by themselves, in a group, and to process what they read."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import confluent_kafka as ck

from tests.transactions.history import UNKNOWN_OFFSET, Action, Phase, Position, Record
from tests.transactions.producer_client import (
    CONFLUENT,
    PATIENCE_S,
    ConfluentProducer,
    ProducerTrouble,
)
from tests.transactions.worker_role import NotedProducer, Work

POLL_S = 0.2
MAX_BATCH = 50
MAX_PROCESSED = 8
# A reader starts at most so far behind the end.
MAX_BEHIND = 20_000
SEEK_SHARE = 1 / 200
ABORT_SHARE = 1 / 32
PROCESS_PAUSE_S = 0.1
TIMEOUT_MS = 10_000
SESSION_MS = 6000


class NotedConsumer:
    """A consumer whose every move is noted."""

    def __init__(self, work: Work, group: str = "") -> None:
        self._work = work
        self._client = work.next_client()
        self._polling = False
        self.group = group
        self._batch: list[Record] = []
        config: dict[str, Any] = {
            "bootstrap.servers": work.bootstrap,
            "group.id": group or "nobody",
            "isolation.level": work.isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 200,
        }
        self.consumer = ck.Consumer(CONFLUENT | config)

    def assign(self, positions: list[Position]) -> None:
        self.consumer.assign([ck.TopicPartition(*position) for position in positions])
        self._note(Phase.OK, Action.ASSIGN, positions=tuple(positions))

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def poll(self, limit: int) -> list[Record]:
        """What came; what was of partitions that were taken away meanwhile is noted, but left."""
        if not self._polling:
            self._note(Phase.INVOKE, Action.POLL)
            self._polling = True
        wait_s = POLL_S
        while len(self._batch) < limit:
            message = self.consumer.poll(wait_s)
            if message is None:
                break
            wait_s = 0
            if message.error() is None:
                self._batch.append(_record(message))
        return self._taken()

    def seek(self, positions: Iterable[Position]) -> None:
        for position in positions:
            # It has no such partition any more.
            with suppress(ck.KafkaException):
                self.consumer.seek(ck.TopicPartition(*position))
                self._note(Phase.OK, Action.SEEK, positions=(position,))

    def commit(self, positions: list[Position]) -> None:
        """It may fail; then the group reads these again."""
        with suppress(ck.KafkaException):
            offsets = [ck.TopicPartition(*position) for position in positions]
            self.consumer.commit(offsets=offsets, asynchronous=False)

    def _taken(self) -> list[Record]:
        batch, self._batch = self._batch, []
        if batch:
            self._note(Phase.OK, Action.POLL, records=tuple(batch))
            self._polling = False
        return batch

    def _on_assign(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._note(Phase.OK, Action.ASSIGN, positions=_unknown(partitions))

    def _on_revoke(self, _: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        # What this poll has brought so far came before.
        self._taken()
        self._note(Phase.OK, Action.REVOKE, positions=_unknown(partitions))

    def _note(self, phase: Phase, action: Action, **details: Any) -> None:
        note = self._work.recorder.note
        note(phase, action, client=self._client, group=self.group, **details)


def run_reader(work: Work) -> None:
    """Reads everything, and now and then goes back."""
    reader = NotedConsumer(work)
    partitions = [(topic, p) for topic, count in work.topics.items() for p in range(count)]
    reader.assign([Position(*each, _start(work, reader, *each)) for each in partitions])
    while not work.stop.is_set():
        found = reader.poll(MAX_BATCH)
        if found and work.random.random() < SEEK_SHARE:
            record = work.random.choice(found)
            reader.seek([Position(record.topic, record.partition, record.offset // 2)])
    reader.consumer.close()


def _start(work: Work, reader: NotedConsumer, topic: str, partition: int) -> int:
    place = ck.TopicPartition(topic, partition)
    while not work.stop.is_set():
        with suppress(ck.KafkaException):
            _, high = reader.consumer.get_watermark_offsets(place, timeout=2.0)
            return 0 if high < MAX_BEHIND else high - work.random.randrange(MAX_BEHIND)
    return 0


def run_member(work: Work) -> None:
    """Reads in a group, and commits what it has read."""
    member = NotedConsumer(work, group=f"{work.inputs}-members")
    member.subscribe([work.inputs])
    while not work.stop.is_set():
        found = member.poll(MAX_BATCH)
        if found and work.random.random() < 0.5:
            member.commit(_after(found))
    member.consumer.close()


def run_processor(work: Work) -> None:
    """Reads, writes a result for each record, and commits both with one transaction."""
    group = f"{work.inputs}-processors"
    consumer = NotedConsumer(work, group=group)
    consumer.subscribe([work.inputs])
    transactional_id = f"{work.slot}-processor"
    while not work.stop.is_set():
        client = ConfluentProducer(work.bootstrap, transactional_id, TIMEOUT_MS)
        producer = NotedProducer(work, client, transactional_id)
        try:
            producer.open()
            # What the last one left is ended now, so the committed offsets are final.
            _rewind(consumer, work)
            while not work.stop.is_set():
                if found := consumer.poll(MAX_PROCESSED):
                    _process(work, consumer, producer, client, found)
                    work.pause(PROCESS_PAUSE_S)
        except (ProducerTrouble, ck.KafkaException):
            work.pause(PROCESS_PAUSE_S)
        finally:
            producer.close()
    consumer.consumer.close()


def _process(
    work: Work,
    consumer: NotedConsumer,
    producer: NotedProducer,
    client: ConfluentProducer,
    found: list[Record],
) -> None:
    # Taken now: of a later generation, it would vouch for partitions that are others' by then.
    metadata = consumer.consumer.consumer_group_metadata()
    positions = _after(found)
    producer.begin()
    try:
        for topic, partition, offset, _ in found:
            source = (Position(topic, partition, offset),)
            place = work.any_partition(work.results)
            producer.send(*place, positions=source, group=consumer.group)
        producer.flush()
        producer.send_offsets(
            positions, consumer.group, lambda: client.send_offsets(positions, metadata)
        )
        if work.random.random() < ABORT_SHARE:
            raise ProducerTrouble("changed its mind", can_abort=True)
        producer.commit()
    except ProducerTrouble as trouble:
        if not trouble.can_abort:
            raise
        producer.abort()
        _rewind(consumer, work)


def _rewind(consumer: NotedConsumer, work: Work) -> None:
    """Go to what the group has committed."""
    held = consumer.consumer.assignment()
    if not held:
        return
    committed = consumer.consumer.committed(held, timeout=PATIENCE_S)
    positions = [Position(each.topic, each.partition, max(each.offset, 0)) for each in committed]
    consumer.seek(positions)


def _record(message: ck.Message) -> Record:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    value = message.value()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    return Record(topic, partition, offset, value.decode())


def _unknown(partitions: Iterable[ck.TopicPartition]) -> tuple[Position, ...]:
    return tuple(Position(each.topic, each.partition, UNKNOWN_OFFSET) for each in partitions)


def _after(records: Iterable[Record]) -> list[Position]:
    """Just after the last record of each partition."""
    last = {(record.topic, record.partition): record.offset + 1 for record in records}
    return [Position(*place, offset) for place, offset in last.items()]
