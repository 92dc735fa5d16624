"""The last reader: ends what transactions are left, and reads every partition to its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka as ck

from tests.fakes.patience import HANG_S
from tests.transactions.history import Action, Phase, Position, Record, Recorder
from tests.transactions.producer_client import CONFLUENT, ConfluentProducer

BATCH = 500


def end_transactions(bootstrap: str, transactional_ids: Iterable[str]) -> None:
    """Whoever has an id last has ended what others began with it."""
    for transactional_id in sorted(transactional_ids):
        ConfluentProducer(bootstrap, transactional_id).open()


def read_all(bootstrap: str, topics: Mapping[str, int], directory: Path) -> None:
    places = [(topic, p) for topic, count in topics.items() for p in range(count)]
    ends = _settled_ends(bootstrap, places)
    start = tuple(Position(*place, 0) for place in places)
    consumer = _consumer(bootstrap, "read_committed", {"enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(*position) for position in start])
    reached: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + HANG_S
    with Recorder(directory, "final") as recorder:
        recorder.note(Phase.OK, Action.ASSIGN, positions=start)
        while any(reached.get(place, -1) < end for place, end in ends.items()):
            assert time.monotonic() < deadline, f"read to {reached} and not to {ends}"
            recorder.note(Phase.INVOKE, Action.POLL)
            records = _poll(consumer, reached)
            recorder.note(Phase.OK, Action.POLL, records=tuple(records))
        positions = tuple(Position(*place, end) for place, end in ends.items())
        recorder.note(Phase.OK, Action.END, positions=positions)
    consumer.close()


def _poll(consumer: ck.Consumer, reached: dict[tuple[str, int], int]) -> list[Record]:
    """Records; notes in `reached` where the reader is at an end."""
    records: list[Record] = []
    for message in consumer.consume(BATCH, timeout=0.5):
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            records.append(Record(topic, partition, offset, value.decode()))
        elif error.code() == ck.KafkaError._PARTITION_EOF:
            reached[topic, partition] = offset
    return records


def _settled_ends(bootstrap: str, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The ends of partitions in which no transaction is open any more."""
    deadline = time.monotonic() + HANG_S
    while True:
        ends = _ends(bootstrap, places, "read_uncommitted")
        stable = _ends(bootstrap, places, "read_committed")
        if ends == stable:
            return ends
        assert time.monotonic() < deadline, f"transactions stay open: {stable} of {ends}"
        time.sleep(0.2)


def _ends(
    bootstrap: str, places: list[tuple[str, int]], isolation: str
) -> dict[tuple[str, int], int]:
    consumer = _consumer(bootstrap, isolation, {})
    found = {}
    deadline = time.monotonic() + HANG_S
    for place in places:
        while place not in found:
            assert time.monotonic() < deadline, f"no end of {place} is known"
            with suppress(ck.KafkaException):
                partition = ck.TopicPartition(*place)
                _, found[place] = consumer.get_watermark_offsets(partition, timeout=2.0)
    consumer.close()
    return found


def _consumer(bootstrap: str, isolation: str, more: Mapping[str, Any]) -> ck.Consumer:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    return ck.Consumer(CONFLUENT | config | dict(more))
