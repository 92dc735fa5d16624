"""Dead letters of a subscription, looked at where they lie: which there are, and which were sent
back.

Which were sent back is kept with the offsets of a consumer group, `replay/<topic>/<subscription>`:
see `replay_marks`.

Invariant: all is done in pieces that are bounded in bytes, and others have their turn between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from millstream.broker.broker import Broker
from millstream.broker.dead_letters import SOURCE_TOPIC, SUBSCRIPTION
from millstream.broker.message_ids import message_id_of
from millstream.broker.partition import Partition
from millstream.broker.replay_marks import ReplayMarks, read_marks
from millstream.broker.subscription_host import ANSWER_BYTES
from millstream.broker.topics import Topic
from millstream.errors import UnknownTopic
from millstream.records import Record
from millstream.subscriptions.ready_messages import size_bytes

_PAGE_BYTES = 256 << 10
MOST_PASSED = 1_000_000
"""Records that one replay or count looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayLimits:
    """How much is done in one piece."""

    page_records: int = 3000
    """Records that are read at once."""
    looked_at: int = 100_000
    """Records that one search looks at. Letters of other subscriptions may lie between."""
    sent_records: int = 500
    """Letters that are sent back at once."""


LIMITS = ReplayLimits()


class Letter(NamedTuple):
    """A dead letter, and its place among them."""

    partition: int
    record: Record
    is_replayed: bool = False

    @property
    def message_id(self) -> str:
        return message_id_of(self.partition, self.record.offset)


class Letters(NamedTuple):
    """Some letters of a subscription."""

    topic: str
    letters: list[Letter]
    next_offsets: dict[int, int]
    """By partition, where to look on."""


class LetterState(StrEnum):
    """Which letters to look at."""

    ALL = "all"
    OUTSTANDING = "outstanding"
    """Those that were not sent back."""
    REPLAYED = "replayed"


class LetterCounts(NamedTuple):
    """How many letters a subscription has."""

    outstanding: int
    """Those that were not sent back."""
    replayed: int
    is_complete: bool
    """False if there were too many records to look at: then there may be more."""


async def browse(
    broker: Broker,
    topic: str,
    subscription: str,
    offsets: Mapping[int, int],
    *,
    limit: int,
    state: LetterState = LetterState.ALL,
    limits: ReplayLimits = LIMITS,
) -> Letters:
    """Letters from some offsets on, else from the first. Raises UnknownSubscription.

    Fewer than the limit may come, or none, where they are large, or far between.
    """
    name = broker.subscriptions.describe(topic, subscription).dead_letter_topic
    found = letter_topic(broker, name)
    if found is None:
        return Letters(name, [], {})
    marks = await marks_of(broker, (topic, subscription), found)
    wanted = {
        each.number: offsets.get(each.number, 0)
        for each in found.partitions
        if not offsets or each.number in offsets
    }
    look = LetterLook(
        broker, (topic, subscription), limit, ANSWER_BYTES, limits, marks=marks, state=state
    )
    return await look.at(found, wanted)


async def count(broker: Broker, topic: str, subscription: str) -> LetterCounts:
    """How many letters there are. Raises UnknownSubscription."""
    name = broker.subscriptions.describe(topic, subscription).dead_letter_topic
    found = letter_topic(broker, name)
    if found is None:
        return LetterCounts(0, 0, is_complete=True)
    of = (topic, subscription)
    marks = await marks_of(broker, of, found)
    outstanding = replayed = looked_at = 0
    for partition in found.partitions:
        offset, end_offset = partition.log.start_offset, partition.log.last_stable_offset
        while offset < end_offset:
            if looked_at >= MOST_PASSED:
                return LetterCounts(outstanding, replayed, is_complete=False)
            page = broker.reader.read(
                partition, offset, limit=LIMITS.page_records, max_bytes=_PAGE_BYTES
            )
            for record in page.records:
                if is_letter_of(record, *of):
                    if marks[partition.number].is_done(record.offset):
                        replayed += 1
                    else:
                        outstanding += 1
            looked_at += len(page.records)
            # Deleted meanwhile, perhaps.
            offset = max(page.next_offset, partition.log.start_offset)
            await asyncio.sleep(0)
    return LetterCounts(outstanding, replayed, is_complete=True)


async def marks_of(broker: Broker, of: tuple[str, str], found: Topic) -> dict[int, ReplayMarks]:
    """By partition of the dead letter topic, what was sent back."""
    committed = await broker.groups.fetch_offsets(group_of(of))
    marks = {}
    for each in found.partitions:
        stored = committed.get((found.name, each.number))
        known = ReplayMarks() if stored is None else read_marks(stored.offset, stored.metadata)
        marks[each.number] = known.forgetting(each.log.start_offset)
    return marks


def group_of(of: tuple[str, str]) -> str:
    # No topic has a slash in its name.
    return f"replay/{of[0]}/{of[1]}"


class LetterLook:
    """A look for letters of one subscription, which ends when it has found or seen enough."""

    def __init__(
        self,
        broker: Broker,
        of: tuple[str, str],
        limit: int,
        max_bytes: int,
        limits: ReplayLimits,
        *,
        marks: Mapping[int, ReplayMarks],
        state: LetterState,
    ) -> None:
        self._reader = broker.reader
        self._of = of
        self._limit = limit
        self._left_bytes = max_bytes
        self._limits = limits
        self._marks = marks
        self._state = state
        self._found: list[Letter] = []
        self.looked_at = 0

    async def at(self, topic: Topic, offsets: Mapping[int, int]) -> Letters:
        """From some offsets on."""
        next_offsets = {}
        for number, offset in offsets.items():
            next_offsets[number] = await self._look_through(topic.partitions[number], offset)
        return Letters(topic.name, self._found, next_offsets)

    @property
    def _is_over(self) -> bool:
        return (
            len(self._found) >= self._limit
            or self._left_bytes <= 0
            or self.looked_at >= self._limits.looked_at
        )

    async def _look_through(self, partition: Partition, offset: int) -> int:
        """Look at one partition; returns where to look on."""
        log = partition.log
        last_offset = log.last_stable_offset
        offset = max(offset, log.start_offset)
        while offset < last_offset and not self._is_over:
            page = self._reader.read(
                partition, offset, limit=self._limits.page_records, max_bytes=_PAGE_BYTES
            )
            offset = self._sift(partition.number, page.records, page.next_offset)
            await asyncio.sleep(0)
            offset = max(offset, log.start_offset)
        return offset

    def _sift(self, number: int, records: Sequence[Record], next_offset: int) -> int:
        for record in records:
            self.looked_at += 1
            if not is_letter_of(record, *self._of):
                continue
            is_replayed = self._marks[number].is_done(record.offset)
            state = LetterState.REPLAYED if is_replayed else LetterState.OUTSTANDING
            if self._state in {LetterState.ALL, state}:
                self._found.append(Letter(number, record, is_replayed))
                self._left_bytes -= size_bytes(record)
                if self._is_over:
                    return record.offset + 1
        return next_offset


def is_letter_of(record: Record, topic: str, subscription: str) -> bool:
    if not record.headers:
        return False
    headers = dict(record.headers)
    return (
        headers.get(SOURCE_TOPIC) == topic.encode()
        and headers.get(SUBSCRIPTION) == subscription.encode()
    )


def letter_topic(broker: Broker, name: str) -> Topic | None:
    """None where nothing has died yet."""
    try:
        return broker.topics.get(name)
    except UnknownTopic:
        return None
