"""Runs the state machines of groups: stores what they decide, keeps their time, answers.

The rules, in the order in which they hold for each transition: its records are appended, or nothing
happens; then the group takes its new state; then, once the records are durable, the replies go
out. A reply without records of its own waits as well while the group has records that are not
durable, since it may tell of them.

Offsets that are stored in a transaction are pending until it ends. Its end is a record like any
other to those who ask: what it has committed is told once it is durable.

Invariant: every group here has a timer at or before its deadline; a ticket is answered once, or
whoever asked has gone; every group with pending offsets is found by their producers.
After a crash: groups are rebuilt from the log by `replay`; nobody waits any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.broker.state_log import StateLog, TransactionalProducer
from millstream.clock import Clock
from millstream.errors import Conflict, Fenced, InvalidRequest, MillstreamError, Unavailable
from millstream.groups.group_records import Committed, OffsetCommitted, OffsetTombstone
from millstream.groups.group_records_format import Encoder
from millstream.groups.offsets import TopicPartition, apply_offset
from millstream.groups.outcome import Outcome, Reply, Ticket
from millstream.groups.pending_offsets import Pending, PendingOffsets

_log = logging.getLogger(__name__)

_RETRY_MS = 1000
"""After a transition by time that could not be stored."""

GroupT = TypeVar("GroupT")


class HostedGroup(Generic[GroupT]):
    """A group, its offsets, and what the runner needs to know of both."""

    __slots__ = ("group", "group_id", "offsets", "pending", "timer", "timer_ms", "unsettled")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group: GroupT | None = None
        """None where there are only offsets."""
        self.offsets: dict[TopicPartition, Committed] = {}
        self.pending = PendingOffsets()
        self.timer: asyncio.TimerHandle | None = None
        self.timer_ms = 0
        self.unsettled: int | None = None
        """The end of the log after the group's last record, while that is not durable."""

    @property
    def has_offsets(self) -> bool:
        """Whether there are any, pending ones too."""
        return bool(self.offsets or self.pending)

    def partitions(self) -> Collection[TopicPartition]:
        """All that there are offsets of, pending ones too."""
        return {**self.offsets, **dict.fromkeys(self.pending)} if self.pending else self.offsets


Step = Callable[[HostedGroup[GroupT], Ticket], Outcome[GroupT, Any]]
"""A transition, from the group as it is when its turn comes."""


class GroupRunner(Generic[GroupT]):
    """All groups of the broker."""

    def __init__(
        self,
        state_log: StateLog,
        *,
        clock: Clock,
        encoders: Mapping[type, Encoder],
        tick: Callable[[GroupT, int], Outcome[GroupT, Any]],
        deadline_of: Callable[[GroupT], int | None],
    ) -> None:
        self._state_log = state_log
        self._clock = clock
        self._encoders = encoders
        self._tick = tick
        self._deadline_of = deadline_of
        self._groups: dict[str, HostedGroup[GroupT]] = {}
        self._in_transactions: dict[int, set[str]] = {}
        """By producer, the groups that its open transaction has offsets of."""
        self._waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self._last_ticket = 0
        self._is_closed = False

    # What there is

    def find(self, group_id: str) -> HostedGroup[GroupT] | None:
        return self._groups.get(group_id)

    def all(self) -> Iterator[HostedGroup[GroupT]]:
        """Safe against groups that come and go meanwhile."""
        return iter(tuple(self._groups.values()))

    # Running

    async def ask(
        self, group_id: str, step: Step[GroupT], *, producer: TransactionalProducer | None = None
    ) -> Any:
        """Make a transition and wait for the reply to its ticket. Raises MillstreamError.

        With a producer its records, which are offsets, are part of that one's transaction.
        """
        if self._is_closed:
            raise Unavailable
        hosted = self._groups.get(group_id) or HostedGroup(group_id)
        self._last_ticket = ticket = self._last_ticket + 1
        answer = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        try:
            self._run(hosted, step(hosted, ticket), producer)
            return await answer
        finally:
            del self._waiting[ticket]

    def renew(self, hosted: HostedGroup[GroupT], outcome: Outcome[GroupT, Any]) -> Any:
        """The short way of a settled group that stores nothing, replies, and gains time."""
        if self._is_closed:
            raise Unavailable
        assert not outcome.records, "what is stored goes the long way"
        assert hosted.unsettled is None, "a reply could tell of what is not durable"
        hosted.group = outcome.group
        [reply] = outcome.replies
        if isinstance(reply.value, MillstreamError):
            raise reply.value
        return reply.value

    def tell(
        self,
        hosted: HostedGroup[GroupT],
        outcome: Outcome[GroupT, Any],
        *,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Make a transition that nobody asked for. Raises MillstreamError."""
        if self._is_closed:
            raise Unavailable
        self._run(hosted, outcome, producer)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The last thing in the log is the end of a producer's transaction."""
        end_offset = self._state_log.end_offset
        for group_id in self._in_transactions.pop(producer_id, ()):
            hosted = self._groups.get(group_id)
            if hosted is None:
                continue
            hosted.offsets.update(hosted.pending.end(producer_id, is_commit=is_commit))
            hosted.unsettled = end_offset
            self._keep(hosted)
            self._reply_when_settled(hosted, ())

    async def settled(self, hosted: HostedGroup[GroupT]) -> None:
        """Return when all that a group has stored is durable: what it says now will stay true."""
        if hosted.unsettled is not None:
            try:
                await self._state_log.durable(hosted.unsettled)
            except MillstreamError as failure:
                raise _as_unavailable(hosted.group_id, failure) from failure

    def restore(
        self,
        group_id: str,
        group: GroupT | None,
        offsets: dict[TopicPartition, Committed],
        pending: PendingOffsets,
    ) -> None:
        """Take over a group from the log."""
        hosted: HostedGroup[GroupT] = HostedGroup(group_id)
        hosted.group = group
        hosted.offsets = offsets
        hosted.pending = pending
        for producer_id, _, _ in pending.all():
            self._in_transactions.setdefault(producer_id, set()).add(group_id)
        self._keep(hosted)
        self._set_timer(hosted)

    def close(self) -> None:
        """Send all who wait away, and all who come later."""
        self._is_closed = True
        for hosted in self._groups.values():
            _cancel_timer(hosted)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unavailable())

    def _run(
        self,
        hosted: HostedGroup[GroupT],
        outcome: Outcome[GroupT, Any],
        producer: TransactionalProducer | None = None,
    ) -> None:
        tickets = {reply.ticket for reply in outcome.replies}
        assert len(tickets) == len(outcome.replies), "a ticket is answered twice"
        if outcome.records:
            hosted.unsettled = self._append(hosted.group_id, outcome.records, producer)
            if producer is None:
                _apply(hosted, outcome.records)
            else:
                first_offset = hosted.unsettled - len(outcome.records)
                self._hold(hosted, outcome.records, producer, first_offset)
        hosted.group = outcome.group
        self._keep(hosted)
        self._set_timer(hosted)
        if hosted.unsettled is None:
            self._deliver(outcome.replies)
        elif outcome.records or outcome.replies:
            self._reply_when_settled(hosted, outcome.replies)

    def _append(
        self, group_id: str, records: Sequence[Any], producer: TransactionalProducer | None
    ) -> int:
        entries = [self._encoders[type(record)](record) for record in records]
        try:
            return self._state_log.append(entries, producer=producer)
        except (InvalidRequest, Conflict, Fenced):
            raise
        except MillstreamError as failure:
            raise _as_unavailable(group_id, failure) from failure

    def _hold(
        self,
        hosted: HostedGroup[GroupT],
        records: Sequence[Any],
        producer: TransactionalProducer,
        first_offset: int,
    ) -> None:
        """Keep offsets of a transaction until that ends."""
        for record_offset, record in enumerate(records, first_offset):
            assert isinstance(record, OffsetCommitted), "a transaction holds offsets only"
            pending = Pending(record.committed, record_offset, producer.epoch)
            hosted.pending.add(producer.producer_id, (record.topic, record.partition), pending)
        self._in_transactions.setdefault(producer.producer_id, set()).add(hosted.group_id)

    def _reply_when_settled(self, hosted: HostedGroup[GroupT], replies: tuple[Reply, ...]) -> None:
        assert hosted.unsettled is not None, "there is something to wait for"
        # Durable before told: the replies leave when the log is synced up to here.
        durable = self._state_log.durable(hosted.unsettled)
        durable.add_done_callback(partial(self._settle, hosted, hosted.unsettled, replies))

    def _settle(
        self,
        hosted: HostedGroup[GroupT],
        offset: int,
        replies: tuple[Reply, ...],
        durable: asyncio.Future[None],
    ) -> None:
        failure = durable.exception()
        if failure is not None:
            # The group stays unsettled, so that nothing it says is taken for true any more.
            error = _as_unavailable(hosted.group_id, failure)
            replies = tuple(Reply(reply.ticket, error) for reply in replies)
        elif hosted.unsettled == offset:
            hosted.unsettled = None
        self._deliver(replies)

    def _deliver(self, replies: tuple[Reply, ...]) -> None:
        for reply in replies:
            answer = self._waiting.get(reply.ticket)
            # Whoever asked may have hung up.
            if answer is None or answer.done():
                continue
            if isinstance(reply.value, MillstreamError):
                answer.set_exception(reply.value)
            else:
                answer.set_result(reply.value)

    def _keep(self, hosted: HostedGroup[GroupT]) -> None:
        if hosted.group is not None or hosted.has_offsets:
            self._groups[hosted.group_id] = hosted
        else:
            self._groups.pop(hosted.group_id, None)

    def _set_timer(self, hosted: HostedGroup[GroupT]) -> None:
        """Have a timer at or before the deadline: one that is early just looks again."""
        deadline_ms = None if hosted.group is None else self._deadline_of(hosted.group)
        if deadline_ms is None:
            _cancel_timer(hosted)
        elif hosted.timer is None or deadline_ms < hosted.timer_ms:
            self._start_timer(hosted, deadline_ms)

    def _start_timer(self, hosted: HostedGroup[GroupT], at_ms: int) -> None:
        _cancel_timer(hosted)
        delay_ms = max(at_ms - self._clock.now_ms(), 0)
        loop = asyncio.get_running_loop()
        hosted.timer = loop.call_later(delay_ms / 1000, self._on_time, hosted)
        hosted.timer_ms = at_ms

    def _on_time(self, hosted: HostedGroup[GroupT]) -> None:
        hosted.timer = None
        now_ms = self._clock.now_ms()
        deadline_ms = None if hosted.group is None else self._deadline_of(hosted.group)
        if hosted.group is None or deadline_ms is None or deadline_ms > now_ms:
            self._set_timer(hosted)
            return
        try:
            self._run(hosted, self._tick(hosted.group, now_ms))
        except MillstreamError:
            self._start_timer(hosted, now_ms + _RETRY_MS)
        except Exception:  # Outer edge of a timer: without it no session would end any more.
            _log.exception(
                "group %(group)r: the passing of time went wrong", {"group": hosted.group_id}
            )
            self._start_timer(hosted, now_ms + _RETRY_MS)


def _apply(hosted: HostedGroup[Any], records: Sequence[Any]) -> None:
    for record in records:
        if isinstance(record, OffsetCommitted | OffsetTombstone):
            apply_offset(hosted.offsets, record)
            if hosted.pending:
                hosted.pending.supersede((record.topic, record.partition))


def _cancel_timer(hosted: HostedGroup[Any]) -> None:
    if hosted.timer is not None:
        hosted.timer.cancel()
        hosted.timer = None


def _as_unavailable(group_id: str, failure: BaseException) -> Unavailable:
    """Why a group could not be stored is for the log; to a client the coordinator is away."""
    _log.error(
        "group %(group)r: its state cannot be stored: %(error)s",
        {"group": group_id, "error": failure},
    )
    return Unavailable()
