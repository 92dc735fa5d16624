"""The group coordinator: every use case of consumer groups and committed offsets.

What happens to a group is decided by pure functions (`groups.migration` for its members' requests
and the passing of time, `group_steps` for the rest); they are run by a `GroupRunner`, which stores
what they decide before it answers.

After a crash: `replay` brings back every group and offset that anyone was told of.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from millstream.broker import group_steps as steps
from millstream.broker.group_limits import GroupLimits
from millstream.broker.group_names import (
    LONGEST_TEXT_BYTES,
    check_group_id,
    check_text,
    check_texts,
)
from millstream.broker.group_replay import ENCODERS, stored_groups
from millstream.broker.group_runner import GroupRunner
from millstream.broker.group_steps import Hosted, Result
from millstream.broker.state_log import StateLog, TransactionalProducer
from millstream.broker.steady_clock import SteadyClock
from millstream.broker.topic_patterns import study
from millstream.clock import Clock
from millstream.errors import (
    MillstreamError,
    Unavailable,
    UnknownGroup,
    UnstableOffset,
)
from millstream.groups import classic_transitions, migration
from millstream.groups.classic_description import GroupDescription, GroupListing, describe
from millstream.groups.classic_group import ClassicGroup, ClassicState
from millstream.groups.commands import Heartbeat, Join, Joined, Leave, Left, Sync, Synced
from millstream.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.groups.consumer_group import ConsumerGroup, TopicsView
from millstream.groups.group_records import Committed
from millstream.groups.migration import AnyGroup
from millstream.groups.offsets import (
    Committer,
    OffsetToCommit,
    TopicPartition,
    commit_records,
    metadata_refusal,
)
from millstream.groups.outcome import NO_TICKET, Outcome, Reply, Ticket
from millstream.settings.group_overrides import effective_for_group
from millstream.settings.groups import GroupSettings

_log = logging.getLogger(__name__)

_NOBODY = Committer("", None, -1)
_LONGEST_ID_PREFIX = 255


class GroupCoordinator:
    """Coordinates all groups of the broker. Lives on the event loop."""

    def __init__(
        self,
        state_log: StateLog,
        *,
        settings: GroupSettings,
        clock: Clock,
        topics: Callable[[], TopicsView],
        new_member_id: Callable[[str], str],
    ) -> None:
        """`new_member_id` makes an id that nobody had before out of a client's name."""
        self._state_log = state_log
        self.settings = settings
        """May become others at any time."""
        self.overrides: dict[str, Mapping[str, str]] = {}  # by group, checked
        self._wall = clock
        # Sessions and rebalances must not end because somebody sets the machine's clock.
        self._clock = SteadyClock(clock)
        self._topics = topics
        self._new_member_id = new_member_id
        self._runner: GroupRunner[AnyGroup] = GroupRunner(
            state_log,
            clock=self._clock,
            encoders=ENCODERS,
            tick=lambda group, now_ms: migration.tick(
                group, now_ms, topics=topics(), settings=self.settings_of(group.group_id)
            ),
            deadline_of=migration.deadline_of,
        )
        self._limits = GroupLimits(self._runner.all, lambda: self.settings, self._clock)

    # Life

    async def start(self, cut_end: Callable[[str, int], int | None]) -> None:
        """Bring back what the log holds. Call once, first, when all topics are known.

        Transactions that the log has open stay so, and are to be ended from outside.
        `cut_end` tells where a partition's log ends that a crash may have cut.
        """
        self.replay()
        for hosted in self._runner.all():
            self._tell(hosted, steps.set_back(hosted, cut_end))
            for producer, outcome in tuple(steps.set_back_pending(hosted, cut_end)):
                self._runner.tell(hosted, outcome, producer=producer)
        # Durable before anyone can create a topic of a name whose offsets were forgotten.
        await self._state_log.all_durable()

    def replay(self) -> None:
        """The first part of `start`."""
        now_ms = self._clock.now_ms()
        for group_id, stored in stored_groups(self._state_log.batches()).items():
            group = stored.group(now_ms, self.settings)
            self._runner.restore(group_id, group, stored.offsets, stored.pending)
        # A crash may have come between the end of a topic and that of its offsets; another topic
        # of its name must not be read from there.
        topics = self._topics()
        for hosted in self._runner.all():
            try:
                self._tell(hosted, steps.forget_topics(hosted, lambda name: name not in topics))
            except MillstreamError as error:
                _log.error(
                    "group %(group)r: offsets not forgotten: %(error)s",
                    {"group": hosted.group_id, "error": error},
                )

    async def run(self) -> None:
        """Forget expired offsets, until cancelled."""
        while True:
            await asyncio.sleep(self.settings.offsets_retention_check_ms / 1000)
            for _ in self._expiring():
                # Other work comes first, however many groups there are.
                await asyncio.sleep(0)

    def close(self) -> None:
        """Answer all who wait, and let nothing happen any more."""
        self._runner.close()

    def settings_of(self, group_id: str) -> GroupSettings:
        overrides = self.overrides.get(group_id)
        return effective_for_group(self.settings, overrides) if overrides else self.settings

    # Members of classic groups

    async def join(self, group_id: str, command: Join) -> Joined:
        """Raises MemberIdRequired, and whatever else keeps a member out."""
        check_group_id(group_id)
        check_texts(command)
        name = command.instance_id or command.client_id
        new_member_id = self._new_member_id(name[:_LONGEST_ID_PREFIX])
        waits_by: Ticket = NO_TICKET

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            nonlocal waits_by
            self._limits.check_join(hosted, command)
            waits_by = ticket
            ready = command._replace(ticket=ticket, new_member_id=new_member_id)
            return migration.join(
                hosted.group,
                ready,
                self._clock.now_ms(),
                group_id=group_id,
                topics=self._topics(),
                settings=self.settings,
            )

        try:
            joined: Joined = await self._runner.ask(group_id, step)
        except asyncio.CancelledError:
            # The member's connection has closed.
            self._drop_join(group_id, waits_by)
            raise
        return joined

    def _drop_join(self, group_id: str, ticket: Ticket) -> None:
        hosted = self._runner.find(group_id)
        if hosted is not None and isinstance(hosted.group, ClassicGroup):
            now_ms = self._clock.now_ms()
            dropped = classic_transitions.drop_join(hosted.group, ticket, now_ms, self.settings)
            # Where it cannot be stored, which is in the log, the rebalance timeout ends the wait.
            with suppress(MillstreamError):
                self._tell(hosted, dropped)

    async def sync(self, group_id: str, command: Sync) -> Synced:
        hosted = self._runner.find(group_id)
        if hosted is not None:
            self._limits.check_sync(hosted, command)
        synced: Synced = await self._ask_member(group_id, migration.sync, command)
        return synced

    async def heartbeat(self, group_id: str, command: Heartbeat) -> None:
        hosted = self._runner.find(group_id)
        group = None if hosted is None or hosted.unsettled is not None else hosted.group
        if hosted is not None and isinstance(group, ClassicGroup):
            # By far the most frequent request; it never brings a deadline closer.
            now_ms = self._clock.now_ms()
            self._runner.renew(hosted, classic_transitions.heartbeat(group, command, now_ms))
        else:
            await self._ask_member(group_id, migration.heartbeat, command)

    async def leave(self, group_id: str, command: Leave) -> Left:
        left: Left = await self._ask_member(group_id, migration.leave, command)
        return left

    async def _ask_member(
        self,
        group_id: str,
        transition: Callable[..., Result],
        command: Sync | Heartbeat | Leave,
    ) -> Any:
        check_group_id(group_id)

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            return transition(
                hosted.group,
                command._replace(ticket=ticket),
                self._clock.now_ms(),
                topics=self._topics(),
                settings=self.settings,
            )

        return await self._runner.ask(group_id, step)

    # Members of consumer groups

    async def consumer_heartbeat(
        self, group_id: str, command: ConsumerHeartbeat
    ) -> ConsumerHeartbeatReply:
        check_group_id(group_id)
        check_text("group member", command.member_id)
        if command.regex:
            await study(command.regex, self._topics())
        new_member_id = "" if command.member_id else self._new_member_id("")

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            if command.topics is not None or command.regex is not None:
                self._limits.check_heartbeat(hosted, command)
            return migration.consumer_heartbeat(
                hosted.group,
                command._replace(ticket=ticket, new_member_id=new_member_id),
                self._clock.now_ms(),
                group_id=group_id,
                topics=self._topics(),
                settings=self.settings_of(group_id),
            )

        reply: ConsumerHeartbeatReply = await self._runner.ask(group_id, step)
        return reply

    async def consumer_describe(self, group_id: str) -> ConsumerGroup:
        """Raises UnknownGroup, also for a group of the other kind."""
        hosted = self._runner.find(group_id)
        if hosted is None or not isinstance(hosted.group, ConsumerGroup):
            raise UnknownGroup(group_id)
        group = hosted.group
        await self._runner.settled(hosted)
        return group

    # Offsets

    async def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        retention_ms: int = -1,
    ) -> tuple[MillstreamError | None, ...]:
        """Keep offsets; one result for each. Raises what is wrong with the committer."""
        check_text("group", group_id)
        limit_bytes = min(self.settings.offset_metadata_max_bytes, LONGEST_TEXT_BYTES)

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            refusal = steps.commit_error(hosted, committer)
            if refusal is not None:
                return steps.answered(hosted, ticket, refusal)
            results = tuple(metadata_refusal(item.metadata, limit_bytes) for item in offsets)
            kept = [item for item, error in zip(offsets, results, strict=True) if error is None]
            self._limits.check_commit(hosted, kept)
            now_ms = self._wall.now_ms()
            return Outcome(
                steps.after_commit(hosted.group, committer.member_id, self._clock.now_ms()),
                commit_records(group_id, kept, now_ms=now_ms, retention_ms=retention_ms),
                (Reply(ticket, results),),
            )

        results: tuple[MillstreamError | None, ...] = await self._runner.ask(group_id, step)
        return results

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets are kept that nobody uses."""
        return self.settings.offsets_retention_minutes * 60_000

    async def renew(self, group_id: str, keys: Collection[TopicPartition]) -> None:
        """Offsets of a group without members are in use: keep them as if committed now."""

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            if steps.commit_error(hosted, _NOBODY) is not None:
                # Its members keep them.
                return steps.answered(hosted, ticket, None)
            kept = [
                OffsetToCommit(*key, found.offset, found.leader_epoch, found.metadata)
                for key in keys
                if (found := hosted.offsets.get(key)) is not None
            ]
            records = commit_records(group_id, kept, now_ms=self._wall.now_ms())
            return Outcome(hosted.group, records, (Reply(ticket, None),))

        await self._runner.ask(group_id, step)

    async def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> tuple[MillstreamError | None, ...]:
        """Keep offsets for when a transaction is committed; one result for each.

        That the producer has a transaction under way which `__consumer_offsets` is part of is for
        the caller to see to, with no await between. Raises what is wrong with the committer.
        """
        check_group_id(group_id)
        limit_bytes = min(self.settings.offset_metadata_max_bytes, LONGEST_TEXT_BYTES)
        topics = self._topics()

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            refusal = steps.transactional_commit_error(hosted, committer)
            if refusal is not None:
                return steps.answered(hosted, ticket, refusal)
            results = tuple(
                steps.topic_refusal(item, topics) or metadata_refusal(item.metadata, limit_bytes)
                for item in offsets
            )
            kept = [item for item, error in zip(offsets, results, strict=True) if error is None]
            self._limits.check_commit(hosted, kept)
            records = commit_records(group_id, kept, now_ms=self._wall.now_ms())
            return Outcome(hosted.group, records, (Reply(ticket, results),))

        producer = TransactionalProducer(producer_id, producer_epoch)
        results: tuple[MillstreamError | None, ...] = await self._runner.ask(
            group_id, step, producer=producer
        )
        return results

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """A producer's transaction has ended: what was pending is committed, or gone.

        Call it right after its marker was appended to the log of `__consumer_offsets`.
        """
        self._runner.end_transaction(producer_id, is_commit=is_commit)

    async def fetch_offsets(
        self,
        group_id: str,
        wanted: Collection[TopicPartition] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Mapping[TopicPartition, Committed]:
        """Those of the wanted that there are; None wants all."""
        hosted = self._runner.find(group_id)
        if hosted is None:
            return {}
        steps.check_offset_fetch(hosted.group, member_id, member_epoch)
        offsets = hosted.offsets
        keys = tuple(offsets) if wanted is None else [key for key in wanted if key in offsets]
        found = {key: offsets[key] for key in keys}
        # An offset that may yet be lost is not told: a consumer would go back after a crash.
        await self._runner.settled(hosted)
        return found

    async def fetch_stable_offsets(
        self,
        group_id: str,
        wanted: Collection[TopicPartition] | None = None,
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Mapping[TopicPartition, Committed | UnstableOffset]:
        """The same, but for those that a transaction under way may change (KIP-447)."""
        pending = self.pending(group_id)
        keys = pending if wanted is None else [key for key in wanted if key in pending]
        unstable = {
            key: UnstableOffset(group_id=group_id, topic=key[0], partition=key[1]) for key in keys
        }
        # Nothing can happen between: it reads the offsets before it waits.
        found = await self.fetch_offsets(
            group_id, wanted, member_id=member_id, member_epoch=member_epoch
        )
        return {**found, **unstable}

    async def readers(self, topic: str, partition: int) -> dict[str, int]:
        """How far each group has come in a partition; of what may yet be lost, nothing is told."""
        found = {}
        for hosted in self._runner.all():
            committed = hosted.offsets.get((topic, partition))
            if committed is not None:
                with suppress(Unavailable):
                    await self._runner.settled(hosted)
                    found[hosted.group_id] = committed.offset
        return found

    async def delete_offsets(
        self, group_id: str, wanted: Sequence[TopicPartition]
    ) -> tuple[MillstreamError | None, ...]:
        """Forget offsets; one result for each. Raises UnknownGroup, NonEmptyGroup."""

        def step(hosted: Hosted, ticket: Ticket) -> Result:
            return steps.delete_offsets(hosted, ticket, list(wanted), self._topics())

        results: tuple[MillstreamError | None, ...] = await self._runner.ask(group_id, step)
        return results

    # Groups

    def describe(self, group_id: str) -> GroupDescription:
        """A group that does not exist, or is not of the classic kind, is Dead."""
        hosted = self._runner.find(group_id)
        if hosted is None or isinstance(hosted.group, ConsumerGroup):
            return GroupDescription(group_id, ClassicState.DEAD)
        if hosted.group is None:
            return GroupDescription(group_id, ClassicState.EMPTY)
        return describe(hosted.group)

    def list(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Groups in one of some states and of one of some types; none named is any."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        return [
            listing
            for listing in map(steps.listing, self._runner.all())
            if not (wanted_states and listing.state.lower() not in wanted_states)
            and not (wanted_types and listing.group_type not in wanted_types)
        ]

    def committed(self) -> Iterator[tuple[GroupListing, Mapping[TopicPartition, Committed]]]:
        """Every group with what it has committed, as it is now, also of what may yet be lost."""
        return ((steps.listing(hosted), hosted.offsets) for hosted in self._runner.all())

    def pending(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions whose committed offset a transaction under way may change."""
        hosted = self._runner.find(group_id)
        return () if hosted is None else tuple(hosted.pending)

    async def delete(self, group_id: str) -> None:
        """Raises UnknownGroup, NonEmptyGroup."""
        await self._runner.ask(group_id, steps.delete)

    # The passing of time, and other things that happen

    def expire(self) -> None:
        """Forget offsets that were kept long enough, and groups that nothing is left of."""
        for _ in self._expiring():
            pass

    def _expiring(self) -> Iterator[None]:
        """One group after the other."""
        for hosted in self._runner.all():
            try:
                self._expire(hosted)
            except MillstreamError as error:
                _log.error(
                    "group %(group)r: offsets not expired: %(error)s",
                    {"group": hosted.group_id, "error": error},
                )
            except Exception:  # Outer edge: what is wrong with one group is none of the others'.
                _log.exception("group %(group)r: offsets not expired", {"group": hosted.group_id})
            yield

    def _expire(self, hosted: Hosted) -> None:
        retention_ms = self.offsets_retention_ms
        self._tell(hosted, steps.expire(hosted, self._wall.now_ms(), retention_ms, self._topics()))

    async def topic_deleted(self, name: str) -> None:
        """Durably forget what was committed for a topic that is gone. Raises MillstreamError."""
        for hosted in self._runner.all():
            self._tell(hosted, steps.forget_topics(hosted, name.__eq__))
            # Other work comes first, however many groups there are.
            await asyncio.sleep(0)
        await self._state_log.all_durable()

    def _tell(self, hosted: Hosted, outcome: Result) -> None:
        if outcome.records or outcome.group is not hosted.group:
            self._runner.tell(hosted, outcome)
