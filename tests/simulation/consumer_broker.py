"""One group on a fake clock, with all that a broker does around it; it checks itself at each step.

What is checked after every transition:
- no partition is held by two members;
- what is stored, written to bytes and read again, is the group, deadlines apart;
- the group's epoch and its members' epochs do not go down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from millstream.broker.group_replay import StoredGroup
from millstream.groups import consumer_records_format, group_records_format, migration
from millstream.groups.consumer_group import ConsumerGroup, MemberState, TopicFacts, TopicsView
from millstream.groups.consumer_partitions import NO_PARTITIONS, overlaps, union
from millstream.groups.consumer_reconciliation import waits_for_others
from millstream.groups.group_records_format import number_of
from millstream.groups.migration import AnyGroup, AnyOutcome
from millstream.groups.outcome import Ticket
from millstream.settings.groups import GroupSettings

GROUP_ID = "mill"
SESSION_MS = 10_000
SETTINGS = GroupSettings(
    min_session_timeout_ms=1000,
    consumer_session_timeout_ms=SESSION_MS,
    consumer_heartbeat_interval_ms=1000,
    initial_rebalance_delay_ms=500,
)
ENCODERS = {**group_records_format.ENCODERS, **consumer_records_format.ENCODERS}
DECODERS = {**group_records_format.DECODERS, **consumer_records_format.DECODERS}


class Violation(AssertionError):
    """The group did what it must never do."""


class Asker(Protocol):
    def on_reply(self, ticket: Ticket, value: object) -> None: ...


class SimulatedBroker:
    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.group: AnyGroup | None = None
        self.topics: TopicsView = {}
        self._log: list[tuple[bytes, bytes | None]] = []
        self._stored = StoredGroup()
        self._waiting: dict[Ticket, Asker] = {}
        self._last_ticket = 0
        self._last_id = 0

    def new_id(self, prefix: str) -> str:
        self._last_id += 1
        return f"{prefix}-{self._last_id}"

    def set_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or give it more partitions."""
        known = self.topics.get(name)
        topic_id = known.topic_id if known else self.new_id("id").encode().ljust(16, b"_")
        self.topics = {**self.topics, name: TopicFacts(topic_id, partitions)}

    def delete_topic(self, name: str) -> None:
        self.topics = {other: facts for other, facts in self.topics.items() if other != name}

    def ask(self, asker: Asker, request: Callable[[Ticket], AnyOutcome]) -> Ticket:
        """Make a transition; replies reach whoever waits for them, now or later."""
        self.tick()
        self._last_ticket += 1
        self._waiting[self._last_ticket] = asker
        self._take(request(self._last_ticket))
        return self._last_ticket

    def hang_up(self, ticket: Ticket) -> None:
        self._waiting.pop(ticket, None)

    def tick(self) -> None:
        for _ in range(100):
            deadline_ms = None if self.group is None else migration.deadline_of(self.group)
            if self.group is None or deadline_ms is None or deadline_ms > self.now_ms:
                return
            self._take(
                migration.tick(self.group, self.now_ms, topics=self.topics, settings=self.settings)
            )
        raise Violation(f"time does not get past {self.now_ms}")

    def restart(self, *, is_compacted: bool) -> None:
        """Lose all but the log. Those who wait are never answered."""
        if is_compacted:
            newest = {key: place for place, (key, _) in enumerate(self._log)}
            self._log = [self._log[place] for place in sorted(newest.values())]
        self._stored = StoredGroup()
        for key, value in self._log:
            self._stored.apply(DECODERS[number_of(key)](key, value))
        self.group = self._stored.group(self.now_ms, self.settings)
        self._waiting.clear()

    def _take(self, outcome: AnyOutcome) -> None:
        before, self.group = self.group, outcome.group
        for record in outcome.records:
            key, value = ENCODERS[type(record)](record)
            self._log.append((key, value))
            self._stored.apply(DECODERS[number_of(key)](key, value))
        self._check(before)
        for reply in outcome.replies:
            asker = self._waiting.pop(reply.ticket, None)
            if asker is not None:
                asker.on_reply(reply.ticket, reply.value)

    # What must always hold

    def _check(self, before: AnyGroup | None) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            if self._stored.classic is not None:
                raise Violation("both kinds are stored")
            if self._stored.consumer is None or _lasting(self._stored.consumer) != _lasting(group):
                raise Violation(f"stored is {self._stored.consumer}, and not {group}")
            self._check_holders(group)
            if isinstance(before, ConsumerGroup):
                _check_epochs(before, group)
        elif self._stored.consumer is not None:
            raise Violation("a consumer group is stored that is no more")

    def _check_holders(self, group: ConsumerGroup) -> None:
        held = NO_PARTITIONS
        for member in group.members.values():
            if overlaps(member.current.assigned, member.current.revoking):
                raise Violation(f"{member} is to give up what it is to keep")
            if overlaps(held, member.current.held):
                raise Violation(
                    f"what {member.member_id} holds is held by another one too: {group}"
                )
            held = union(held, member.current.held)

    # What must hold in the end

    def check_converged(self) -> None:
        """All partitions of topics that are read are had by somebody, and nobody waits."""
        group = self.group
        assert isinstance(group, ConsumerGroup)
        names = {
            name
            for member in group.members.values()
            for name in (*member.metadata.topics, *(member.metadata.regex or "").split("|"))
        }
        expected = {
            (self.topics[name].topic_id, number)
            for name in names
            if name in self.topics
            for number in range(self.topics[name].partitions)
        }
        had = [
            (topic_id, number)
            for member in group.members.values()
            for topic_id, numbers in member.current.assigned.items()
            for number in numbers
        ]
        if sorted(had) != sorted(expected):
            raise Violation(f"{sorted(had)} is assigned where {sorted(expected)} exist")
        for member in group.members.values():
            if not member.current.epoch == group.epoch == group.target_epoch:
                raise Violation(f"{member} is not in the epoch of {group}")
            if member.current.state is not MemberState.STABLE or waits_for_others(group, member):
                raise Violation(f"{member} is not stable")


def _lasting(group: ConsumerGroup) -> dict[str, Any]:
    """All of a group that is stored."""
    members = {
        member_id: replace(member, session_deadline_ms=0, rebalance_deadline_ms=None)
        for member_id, member in group.members.items()
    }
    return {
        "epochs": (group.epoch, group.target_epoch, group.metadata_hash),
        "members": members,
        "target": group.target,
    }


def _check_epochs(before: ConsumerGroup, after: ConsumerGroup) -> None:
    if after.epoch < before.epoch or after.target_epoch < before.target_epoch:
        raise Violation(f"epochs went down from {before} to {after}")
    if after.target_epoch > after.epoch:
        raise Violation(f"the target is ahead of the group: {after}")
    for member_id, member in after.members.items():
        was = before.members.get(member_id)
        has_left = member.has_left_for_now or (was is not None and was.has_left_for_now)
        if was is not None and not has_left and member.current.epoch < was.current.epoch:
            raise Violation(f"the epoch of {member} was {was.current.epoch}")
        if member.current.epoch > after.target_epoch:
            raise Violation(f"{member} is ahead of the target of {after}")
