"""Stores what subscriptions know, in `__subscriptions`.

All that changes while the event loop turns once is one batch and one sync, and is answered
together.

Invariant: whoever waits is answered when all that was changed before is on disk. What could not be
stored is stored with the next that is, or tried again after a while.
After a crash: `replayed` gives what was stored last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millstream.broker.state_log import Entry, StateLog
from millstream.broker.steady_clock import SteadyClock
from millstream.errors import InvalidSetting, MalformedMessage, MillstreamError, Unavailable
from millstream.subscriptions.partition_queue import PartitionQueue
from millstream.subscriptions.progress import Block, Changes, Head, Progress
from millstream.subscriptions.subscription import SubscriptionSettings
from millstream.subscriptions.subscription_records import (
    StoredHead,
    StoredSubscription,
    decode,
    encode_block,
    encode_changes,
    encode_head,
    encode_subscription,
)

_log = logging.getLogger(__name__)

_RETRY_S = 1.0

Name = tuple[str, str]
"""Of a topic, and of a subscription of it."""
Part = tuple[int, Iterable[int]]
"""A partition, and the blocks of it that are stored."""


class Stored(Protocol):
    """What the store must know of a subscription."""

    @property
    def full_name(self) -> Name: ...

    queues: list[PartitionQueue]


@dataclass(slots=True)
class Replayed:
    """A subscription as the log has it."""

    settings: SubscriptionSettings
    heads: dict[int, Head] = field(default_factory=dict)
    blocks: dict[int, dict[int, Block]] = field(default_factory=dict)

    def progress(self, partition: int) -> Progress:
        head = self.heads.get(partition) or Head(0)
        return Progress(head, self.blocks.get(partition))

    def parts(self) -> Iterator[Part]:
        """Those that have records."""
        for partition in {*self.heads, *self.blocks}:
            yield partition, self.blocks.get(partition, {})


class SubscriptionStore:
    """Writes behind, and lets others wait for it.

    Times are stored by the wall clock: the steady clock of another process reads something else.
    """

    def __init__(self, state_log: StateLog, clock: SteadyClock) -> None:
        self._state_log = state_log
        self._clock = clock
        # Held in order: what is deterministic in a test is so in the log.
        self._dirty: dict[Stored, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._is_called = False
        self._timer: asyncio.TimerHandle | None = None

    # Reading

    def replayed(self) -> dict[Name, Replayed]:
        """All subscriptions that the log holds."""
        settings: dict[Name, SubscriptionSettings] = {}
        heads: dict[Name, dict[int, Head]] = defaultdict(dict)
        blocks: dict[Name, dict[int, dict[int, Block]]] = defaultdict(lambda: defaultdict(dict))
        now_ms = self._clock.now_ms()
        for key, (written_ms, value) in self._newest().items():
            try:
                stored = decode(key, value)
            except (MalformedMessage, InvalidSetting) as error:
                _log.warning("a subscription record cannot be read: %(error)s", {"error": error})
                continue
            if stored is None:
                _log.warning("a subscription record is of a kind that is not known")
                continue
            name = (stored.topic, stored.name)
            if isinstance(stored, StoredSubscription):
                assert stored.settings is not None
                settings[name] = stored.settings
            elif isinstance(stored, StoredHead):
                assert stored.head is not None
                heads[name][stored.partition] = stored.head
            else:
                assert stored.block is not None
                block = _rebased(stored.block, written_ms=written_ms, now_ms=now_ms)
                blocks[name][stored.partition][stored.number] = block
        return {
            name: Replayed(each, heads[name], dict(blocks[name])) for name, each in settings.items()
        }

    def _newest(self) -> dict[bytes, tuple[int, bytes]]:
        """By key, what was stored last, and when.

        Most was stored again since, and is not worth a look.
        """
        newest: dict[bytes, tuple[int, bytes]] = {}
        for record in self._state_log.replay():
            key = bytes(record.key or b"")
            if record.value is None:
                newest.pop(key, None)
            else:
                newest[key] = record.timestamp_ms, record.value
        return newest

    # Writing

    def touch(self, subscription: Stored) -> None:
        """It has changed: store it soon."""
        self._dirty[subscription] = None
        self._call()

    async def settled(self) -> None:
        """Return when all that was changed until now is on disk. Raises Unavailable."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._call()
        await done

    def create(self, name: Name, settings: SubscriptionSettings, floors: dict[int, int]) -> None:
        """Append a subscription that begins at some offsets. Raises Unavailable."""
        entries = [encode_subscription(*name, settings)]
        entries += [encode_head(*name, number, Head(floor)) for number, floor in floors.items()]
        self._append(entries)

    def delete(self, subscriptions: Iterable[tuple[Name, Iterable[Part]]]) -> None:
        """Append that subscriptions are gone, with all their parts. Raises Unavailable."""
        entries: list[Entry] = []
        for name, parts in subscriptions:
            entries.append(encode_subscription(*name, None))
            for number, blocks in parts:
                entries.append(encode_head(*name, number, None))
                entries += [encode_block(*name, number, block, None) for block in blocks]
        if entries:
            self._append(entries)

    def forget(self, subscription: Stored) -> None:
        """Store nothing of it any more."""
        self._dirty.pop(subscription, None)

    def close(self) -> None:
        """Store what there is; nobody waits for it any more."""
        self._flush()
        if self._timer is not None:
            self._timer.cancel()

    def _append(self, entries: Sequence[Entry]) -> None:
        try:
            self._state_log.append(entries)
        except MillstreamError as failure:
            raise _as_unavailable(failure) from failure

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_called = False
        waiting, self._waiting = self._waiting, []
        try:
            self._store_changes(waiting)
        except Exception as failure:  # Outer edge of a turn: whoever waits must hear of it.
            _log.exception("subscriptions cannot be stored")
            _fail(waiting, Unavailable())
            if not isinstance(failure, MillstreamError):
                self._try_again()

    def _store_changes(self, waiting: list[asyncio.Future[None]]) -> None:
        entries: list[Entry] = []
        changed: list[tuple[PartitionQueue, Changes]] = []
        ahead_ms = self._clock.wall_ahead_ms
        for subscription in self._dirty:
            for number, queue in enumerate(subscription.queues):
                if queue.progress.is_changed:
                    changes = queue.progress.changes()
                    entries += encode_changes(
                        *subscription.full_name, number, changes, wall_ahead_ms=ahead_ms
                    )
                    changed.append((queue, changes))
        try:
            offset = self._state_log.append(entries) if entries else self._state_log.end_offset
        except MillstreamError as failure:
            _fail(waiting, _as_unavailable(failure))
            self._try_again()
            return
        self._dirty.clear()
        for queue, changes in changed:
            queue.progress.stored(changes)
        if waiting or entries:
            self._answer_when_durable(offset, waiting)

    def _answer_when_durable(self, offset: int, waiting: list[asyncio.Future[None]]) -> None:
        def settle(durable: asyncio.Future[None]) -> None:
            failure = durable.exception()
            error = None if failure is None else _as_unavailable(failure)
            for each in waiting:
                if each.done():
                    continue
                if error is None:
                    each.set_result(None)
                else:
                    each.set_exception(error)

        # Durable before told: what was acknowledged is not delivered again after any crash.
        self._state_log.durable(offset).add_done_callback(settle)

    def _try_again(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_RETRY_S, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._call()


def _rebased(block: Block, *, written_ms: int, now_ms: int) -> Block:
    """A block of an earlier process, with times by the steady clock of this one.

    No message waits longer than it had to wait when the block was written: the wall clock may have
    been set back since.
    """
    failures = {
        offset: failure._replace(
            due_ms=min(failure.due_ms, now_ms + max(failure.due_ms - written_ms, 0))
        )
        for offset, failure in block.failures.items()
    }
    return Block(block.bits, failures)


def _fail(waiting: list[asyncio.Future[None]], error: MillstreamError) -> None:
    for each in waiting:
        if not each.done():
            each.set_exception(error)


def _as_unavailable(failure: BaseException) -> Unavailable:
    """Why nothing could be stored is for the log; to a client the broker is away."""
    _log.error("subscriptions cannot be stored: %(error)s", {"error": failure})
    return Unavailable()
