"""Workers that read with aiokafka: by themselves, and in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.fakes.patience import HANG_S
from tests.transactions.history import UNKNOWN_OFFSET, Action, Phase, Position, Record
from tests.transactions.worker_role import Work

POLL_MS = 200
MAX_BATCH = 50
RETRY_S = 0.2


def run_reader(work: Work) -> None:
    asyncio.run(_read(work, group=""))


def run_member(work: Work) -> None:
    asyncio.run(_read(work, group=f"{work.inputs}-aiokafka"))


async def _read(work: Work, *, group: str) -> None:
    noted = _Notes(work, group)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=work.bootstrap,
        group_id=group or None,
        isolation_level=work.isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=200,
        retry_backoff_ms=50,
    )
    if not await _started(work, consumer):
        return
    if group:
        consumer.subscribe([work.inputs], listener=noted)
    else:
        _assign(work, consumer, noted)
    while not work.stop.is_set():
        noted.polls()
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=MAX_BATCH)
        records = [_record(each) for messages in found.values() for each in messages]
        noted.has(records)
        if group and records and work.random.random() < 0.5:
            await _commit(consumer, records)
    async with asyncio.timeout(HANG_S):
        await consumer.stop()


async def _started(work: Work, consumer: Any) -> bool:
    """The broker may be away just now."""
    while not work.stop.is_set():
        try:
            await consumer.start()
        except KafkaError:
            await asyncio.sleep(RETRY_S)
        else:
            return True
    return False


def _assign(work: Work, consumer: Any, noted: _Notes) -> None:
    places = [TopicPartition(t, p) for t, count in work.topics.items() for p in range(count)]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, 0)
    positions = tuple(Position(place.topic, place.partition, 0) for place in places)
    noted.note(Phase.OK, Action.ASSIGN, positions=positions)


async def _commit(consumer: Any, records: list[Record]) -> None:
    """It may fail; then the group reads these again."""
    last = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
    try:
        await consumer.commit(last)
    except KafkaError:
        await asyncio.sleep(RETRY_S)


class _Notes(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, work: Work, group: str) -> None:
        self._work = work
        self._client = work.next_client()
        self._group = group
        self._polling = False

    def polls(self) -> None:
        if not self._polling:
            self.note(Phase.INVOKE, Action.POLL)
            self._polling = True

    def has(self, records: list[Record]) -> None:
        if records:
            self.note(Phase.OK, Action.POLL, records=tuple(records))
            self._polling = False

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.note(Phase.OK, Action.ASSIGN, positions=_unknown(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.note(Phase.OK, Action.REVOKE, positions=_unknown(revoked))

    def note(self, phase: Phase, action: Action, **details: Any) -> None:
        note = self._work.recorder.note
        note(phase, action, client=self._client, group=self._group, **details)


def _record(message: Any) -> Record:
    return Record(message.topic, message.partition, message.offset, message.value.decode())


def _unknown(partitions: Iterable[TopicPartition]) -> tuple[Position, ...]:
    return tuple(Position(each.topic, each.partition, UNKNOWN_OFFSET) for each in partitions)
