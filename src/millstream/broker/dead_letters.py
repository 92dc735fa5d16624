"""Messages that were delivered in vain too often: sent to another topic, with why, and back.

Invariant: a message is done in its own topic only when it is on disk among the dead letters. One
that cannot be sent is tried again later, and holds up no other.
After a crash: one that had got there and was not yet done is sent there once more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from millstream.broker.reading import Reader
from millstream.broker.sending import NewRecord, Sender
from millstream.broker.subscription_host import HostedSubscription
from millstream.broker.subscription_reading import read_offsets
from millstream.broker.subscription_store import SubscriptionStore
from millstream.broker.topics import Topics
from millstream.errors import MillstreamError
from millstream.records import Record
from millstream.subscriptions.delivery_time import DELIVER_AFTER, DELIVER_AT
from millstream.subscriptions.partition_queue import PartitionQueue
from millstream.subscriptions.progress import Failure
from millstream.subscriptions.subscription import dead_letter_topic

_log = logging.getLogger(__name__)

SOURCE_TOPIC = "millstream-source-topic"
SOURCE_PARTITION = "millstream-source-partition"
SOURCE_OFFSET = "millstream-source-offset"
SUBSCRIPTION = "millstream-subscription"
DELIVERY_COUNT = "millstream-delivery-count"
REASON = "millstream-reason"
_OWN_HEADERS = {
    SOURCE_TOPIC,
    SOURCE_PARTITION,
    SOURCE_OFFSET,
    SUBSCRIPTION,
    DELIVERY_COUNT,
    REASON,
    DELIVER_AT,
    DELIVER_AFTER,
}

_AT_ONCE = 100
_MOST_BYTES = 4 << 20
_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0
_ROOM_BYTES = 4096
"""How much larger than in its own topic a dead letter may be, for its headers."""


class DeadLetters:
    """Sends the dead to where they belong."""

    def __init__(
        self, topics: Topics, sender: Sender, reader: Reader, store: SubscriptionStore
    ) -> None:
        self._topics = topics
        self._sender = sender
        self._reader = reader
        self._store = store

    async def bury(self, hosted: HostedSubscription) -> None:
        """Send all that are dead now, and those who die meanwhile, until none is left."""
        burial = _Burial(hosted, self._reader, self._store, self.send)
        while not hosted.is_gone and any(queue.dead for queue in hosted.queues):
            await burial.round()

    async def send(
        self, hosted: HostedSubscription, letters: Sequence[NewRecord]
    ) -> list[MillstreamError | None]:
        """Store letters durably; why not, for each. Raises what is wrong with their topic."""
        if not letters:
            return []
        name = dead_letter_topic(hosted.topic.name, hosted.settings)
        await self._ensure(name, hosted.topic.settings.max_message_bytes)
        sent = await self._sender.send_many(name, letters)
        return [each if isinstance(each, MillstreamError) else None for each in sent]

    async def _ensure(self, name: str, source_bytes: int) -> None:
        """The topic is created even where senders may not create any: it was asked for."""
        try:
            self._topics.get(name)
        except MillstreamError:
            limit_bytes = min(source_bytes + _ROOM_BYTES, 2**31 - 1)
            await self._topics.create(
                name, partitions=-1, overrides={"max.message.bytes": str(limit_bytes)}
            )


class _Burial:
    """The dead of a subscription on their way."""

    def __init__(
        self,
        hosted: HostedSubscription,
        reader: Reader,
        store: SubscriptionStore,
        send: Callable[
            [HostedSubscription, Sequence[NewRecord]], Awaitable[list[MillstreamError | None]]
        ],
    ) -> None:
        self._hosted = hosted
        self._reader = reader
        self._store = store
        self._send = send
        # By partition, those that could not be sent when that was last tried.
        self._stuck: dict[int, set[int]] = defaultdict(set)
        self._told: set[str] = set()
        self._wait_s = _RETRY_S
        self._waited_s = 0.0

    async def round(self) -> None:
        """Send all but those that are stuck; if any are, wait a moment, and in the end for them."""
        hosted = self._hosted
        for number, queue in enumerate(hosted.queues):
            fresh = sorted(queue.dead.keys() - self._stuck[number])
            while fresh and not hosted.is_gone:
                fresh = fresh[await self._bury_some(number, fresh[:_AT_ONCE]) :]
        if not any(self._stuck.values()):
            return
        await asyncio.sleep(_RETRY_S)
        self._waited_s += _RETRY_S
        if self._waited_s >= self._wait_s:
            self._stuck.clear()
            self._waited_s = 0.0
            self._wait_s = min(2 * self._wait_s, _LONGEST_RETRY_S)

    async def _bury_some(self, number: int, dead: Sequence[int]) -> int:
        """Send the first of the dead of a partition; returns how many were tried."""
        queue, partition = self._hosted.queues[number], self._hosted.topic.partitions[number]
        try:
            found = read_offsets(self._reader, partition, dead, max_bytes=_MOST_BYTES)
            await self._bury_found(number, queue, found.records)
        except MillstreamError as error:
            self._leave(number, dead, error)
            return len(dead)
        # What is not there any more was deleted from the log meanwhile.
        queue.acknowledge([each for each in dead[: found.looked_at] if each not in found.records])
        self._store.touch(self._hosted)
        return found.looked_at

    async def _bury_found(
        self, number: int, queue: PartitionQueue, records: Mapping[int, Record]
    ) -> None:
        # Without those that were acknowledged late.
        dead = {at: queue.dead[at] for at in records if at in queue.dead}
        letters = [_letter(self._hosted, number, records[at], why) for at, why in dead.items()]
        # Durable before done: a crash in between sends it again.
        results = await self._send(self._hosted, letters)
        for offset, error in zip(dead, results, strict=True):
            if error is None:
                queue.bury(offset)
            else:
                self._leave(number, [offset], error)

    def _leave(self, number: int, offsets: Sequence[int], error: MillstreamError) -> None:
        """They cannot be sent now. That is told once for each kind of reason."""
        self._stuck[number].update(offsets)
        kind = type(error).__name__
        if kind not in self._told:
            self._told.add(kind)
            _log.error(
                "subscription %(subscription)r of topic %(topic)s: dead letter of message "
                "%(partition)d:%(offset)d not sent, tried again (and others that fail so): "
                "%(error)s",
                {
                    "subscription": self._hosted.name,
                    "topic": self._hosted.topic.name,
                    "partition": number,
                    "offset": offsets[0],
                    "error": error,
                },
            )


def _letter(hosted: HostedSubscription, number: int, record: Record, failure: Failure) -> NewRecord:
    about = (
        (SOURCE_TOPIC, hosted.topic.name.encode()),
        (SOURCE_PARTITION, b"%d" % number),
        (SOURCE_OFFSET, b"%d" % record.offset),
        (SUBSCRIPTION, hosted.name.encode()),
        (DELIVERY_COUNT, b"%d" % failure.deliveries),
        (REASON, failure.reason.encode()),
    )
    return NewRecord(
        record.value, record.key, headers=(*without_own_headers(record.headers), *about)
    )


def without_own_headers(
    headers: Sequence[tuple[str, bytes | None]],
) -> tuple[tuple[str, bytes | None], ...]:
    """What the sender of a message had put there."""
    return tuple(header for header in headers if header[0] not in _OWN_HEADERS)
