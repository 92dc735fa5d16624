"""A subscription that shares the partitions of a topic with the other members of a group.

The broker is a member of the group on the client's behalf, by Kafka's consumer protocol (KIP-848):
so members of all listeners share one group, and Kafka's tools show it. The partitions that are
assigned to the member are delivered from where the group has committed.

Invariant: a partition is given back to the group only when no message of it is delivered any more.
What was delivered and not acknowledged by then is delivered to the next owner, too.
After a crash: what was answered is committed; the rest is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.broker.broker import Broker
from millstream.broker.topics import Topic
from millstream.errors import FencedMember, InvalidRequest, MillstreamError, UnknownMember
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.feed import Feed
from millstream.gateways.http.origins import positions_of
from millstream.gateways.http.socket_subscriptions import (
    Line,
    LogSubscription,
    SubscriptionId,
    frame,
    place_of_text,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_partitions import NO_PARTITIONS, Partitions
from millstream.groups.offsets import Committer, OffsetToCommit

_log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 1.0
"""Between heartbeats, which cost no network here: so soon a member hears of changes."""
_REBALANCE_TIMEOUT_MS = 60_000
_JOINING = 0
_LEAVING = -1
_NO_EPOCH = -1


class GroupMember:
    """A member of a group that reads one topic."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        topic: Topic,
        *,
        member_id: str,
        origin: Any,
        client_host: str,
    ) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        self._origin = origin
        self._client_host = client_host
        self._member_id = member_id
        self._epoch = _JOINING
        self._assigned: Partitions = NO_PARTITIONS
        self._acked: dict[int, int] = {}
        self._is_fenced = False
        # The epoch that a heartbeat brings is known before anything is committed with it.
        self._turn = asyncio.Lock()

    @property
    def numbers(self) -> frozenset[int]:
        """The partitions that this member has."""
        return self._assigned.get(self._topic.topic_id, frozenset())

    async def run(self, subscription: SharedSubscription) -> None:
        """Stay a member until cancelled. Raises what keeps it from being one.

        FencedMember: the client is a member over another connection now.
        """
        is_new = True
        while True:
            try:
                async with self._turn:
                    reply = await self._heartbeat(is_full=is_new)
                    self._epoch = reply.member_epoch
            except UnknownMember:
                # Its session has expired: what it had belongs to others.
                self._epoch, is_new = _JOINING, True
                await self._change(NO_PARTITIONS, subscription)
                continue
            except FencedMember:
                self._is_fenced = True
                raise
            is_new = False
            if reply.assignment is not None and reply.assignment != self._assigned:
                await self._change(reply.assignment, subscription)
                # At once: others wait for what was given back.
                continue
            await asyncio.sleep(min(reply.heartbeat_interval_ms / 1000, _LONGEST_PAUSE_S))

    async def leave(self) -> None:
        """Let others have its partitions."""
        try:
            if self._epoch != _JOINING and not self._is_fenced:
                self._epoch = _LEAVING
                await self._heartbeat(is_full=False)
        except MillstreamError as error:
            _log.info(
                "group %(group)r: a member has not left: its session expires: %(error)s",
                {"group": self._group, "error": error},
            )

    async def _heartbeat(self, *, is_full: bool) -> Any:
        return await self._broker.groups.consumer_heartbeat(
            self._group,
            ConsumerHeartbeat(
                ticket=0,
                member_id=self._member_id,
                member_epoch=self._epoch,
                client_id="websocket",
                client_host=self._client_host,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if is_full else -1,
                topics=(self._topic.name,) if is_full else None,
                owned=self._assigned,
            ),
        )

    async def _change(self, assigned: Partitions, subscription: SharedSubscription) -> None:
        before = self.numbers
        after = assigned.get(self._topic.topic_id, frozenset())
        positions = await positions_of(
            self._broker,
            self._topic,
            sorted(after - before),
            origin=self._origin,
            group=self._group,
        )
        self._assigned = assigned
        for number in before - after:
            self._acked.pop(number, None)
        await subscription.assign(before - after, positions)

    async def ack(self, ids: Sequence[str]) -> list[str]:
        """Commit all up to and with some messages; returns those of other members' partitions.

        Raises InvalidRequest.
        """
        nexts: dict[int, int] = {}
        ignored: list[str] = []
        for each in ids:
            number, offset = place_of_text(each)
            if offset >= self._broker.topics.partition(self._topic.name, number).log.end_offset:
                raise InvalidRequest(f"there is no message {excerpt(each)} to be acknowledged")
            if number in self.numbers:
                nexts[number] = max(nexts.get(number, 0), offset + 1)
            else:
                ignored.append(each)
        for number, to in nexts.items():
            self._acked[number] = max(to, self._acked.get(number, 0))
        if nexts and not await self._commit({n: self._acked[n] for n in nexts}):
            ignored += [each for each in ids if each not in ignored]
        return ignored

    async def _commit(self, offsets: Mapping[int, int]) -> bool:
        """False if it is no member any more."""
        wanted = [
            OffsetToCommit(self._topic.name, number, offset, _NO_EPOCH, "")
            for number, offset in offsets.items()
        ]
        try:
            async with self._turn:
                committer = Committer(self._member_id, None, self._epoch)
                results = await self._broker.groups.commit(self._group, committer, wanted)
        except (FencedMember, UnknownMember):
            return False
        for each in results:
            if isinstance(each, (FencedMember, UnknownMember)):
                return False
            if isinstance(each, MillstreamError):
                raise each
        return True

    def forget(self) -> None:
        """The client goes on elsewhere: from now on positions may move back, too."""
        self._acked.clear()


class SharedSubscription(LogSubscription):
    """Reads those partitions of a topic that a member of a group has."""

    def __init__(
        self,
        number: SubscriptionId,
        feed: Feed,
        line: Line,
        member: GroupMember,
        *,
        queue_messages: int,
        prefetch: int | None = None,
    ) -> None:
        super().__init__(number, feed, line, queue_messages=queue_messages, prefetch=prefetch)
        self._member = member

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._member.run(self)),
            loop.create_task(super().run()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._member.leave()

    async def assign(self, revoked: frozenset[int], positions: Mapping[int, int]) -> None:
        """Deliver other partitions from now on, and tell the client."""
        async with self._line.turn:
            self.feed.unfollow(revoked)
            self.feed.follow(positions)
            assigned = sorted(self.feed.positions)
            await self._line.write(frame(self.number, assigned=assigned))
