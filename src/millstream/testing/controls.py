"""What a test can do to a broker besides being its client. Runs on the broker's event loop.

None of it goes through the Kafka door: faults do not touch it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from millstream.broker.broker import Broker
from millstream.broker.sending import NewRecord
from millstream.broker.topics import Topic
from millstream.errors import NonEmptyGroup, TimedOut, UnknownGroup
from millstream.testing.fault_rules import Action, FaultRules, Rule
from millstream.testing.movable_time import MovableLoop

_ALL = 1 << 30
_PAGE_BYTES = 1 << 20


class Message(NamedTuple):
    """One message of a topic, as it is stored."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int
    offset: int
    timestamp_ms: int


class Controls:
    """The levers of one running broker. Values go in and out, as plain as JSON but for bytes."""

    def __init__(self, broker: Broker, rules: FaultRules, loop: MovableLoop) -> None:
        self._broker = broker
        self._rules = rules
        self._loop = loop

    # Data

    async def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        await self._broker.topics.create(name, partitions=partitions, overrides=config)

    async def topics(self) -> list[str]:
        return sorted(topic.name for topic in self._topics())

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> tuple[int, int]:
        record = NewRecord(
            value=value,
            key=key,
            headers=tuple((name, content) for name, content in headers),
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        sent = await self._broker.sender.send(topic, record)
        return sent.partition, sent.offset

    async def messages(self, topic: str, at_least: int, timeout_s: float) -> list[list[Any]]:
        """All messages of a topic that there are, once they are as many as that."""
        step_ms = 20
        deadline_s = self._loop.time() + timeout_s
        while len(found := self._messages_so_far(topic, at_least)) < at_least:
            left_ms = round((deadline_s - self._loop.time()) * 1000)
            if left_ms <= 0:
                raise TimedOut(
                    operation=f"the wait for {at_least} messages of topic {topic!r}, "
                    f"which has {len(found)},",
                    timeout_ms=round(timeout_s * 1000),
                )
            await asyncio.sleep(min(step_ms, left_ms) / 1000)
        return found

    async def end_offsets(self, topic: str) -> list[int]:
        return [each.log.end_offset for each in self._broker.topics.get(topic).partitions]

    async def committed(self, group: str) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of all that a group has committed."""
        found = await self._broker.groups.fetch_offsets(group, None)
        return [(topic, number, each.offset) for (topic, number), each in found.items()]

    async def reset(self) -> None:
        self._rules.clear()
        await asyncio.gather(*(self._broker.topics.delete(each.name) for each in self._topics()))
        for listing in self._broker.groups.list():
            # Members that are still there have joined with another test.
            with suppress(UnknownGroup, NonEmptyGroup):
                await self._broker.groups.delete(listing.group_id)

    # Faults and time

    async def add_fault(
        self, number: int, action: Action, api_keys: list[int], **rest: Any
    ) -> None:
        self._rules.add(number, Rule(action=action, api_keys=frozenset(api_keys), **rest))

    async def remove_fault(self, number: int) -> None:
        self._rules.remove(number)

    async def clear_faults(self) -> None:
        self._rules.clear()

    async def hits(self, number: int) -> int:
        return self._rules.get(number).hits

    async def met(self, number: int, times: int, timeout_s: float) -> None:
        """Return when a fault was met that often. Raises TimedOut."""
        rule = self._rules.get(number)
        try:
            async with asyncio.timeout(timeout_s):
                while rule.hits < times:
                    rule.met.clear()
                    await rule.met.wait()
        except TimeoutError:
            raise TimedOut(
                operation=f"the wait for {times} requests to meet a fault, which {rule.hits} did,",
                timeout_ms=round(timeout_s * 1000),
            ) from None

    async def advance(self, milliseconds: int) -> None:
        await self._loop.advance(milliseconds)

    async def now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def _topics(self) -> list[Topic]:
        return [topic for topic in self._broker.topics.all() if not topic.is_internal]

    def _messages_so_far(self, topic: str, at_least: int) -> list[list[Any]]:
        """Raises UnknownTopic, unless there is something to wait for."""
        if at_least and topic not in {each.name for each in self._topics()}:
            return []
        return [
            [each.value, each.key, each.headers, number, each.offset, each.timestamp_ms]
            for number, each in self._records(topic)
        ]

    def _records(self, topic: str) -> Iterator[tuple[int, Any]]:
        reader = self._broker.reader
        for partition in self._broker.topics.get(topic).partitions:
            offset = partition.log.start_offset
            while True:
                page = reader.read(partition, offset, limit=_ALL, max_bytes=_PAGE_BYTES)
                for record in page.records:
                    yield partition.number, record
                if page.next_offset == offset:
                    break
                offset = page.next_offset
