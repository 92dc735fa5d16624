"""A group played by hand by members of both protocols: requests go in, answers come out."""

from __future__ import annotations

import struct
from typing import Any

from millstream.errors import MillstreamError
from millstream.groups import migration
from millstream.groups.classic_group import ClassicGroup
from millstream.groups.commands import (
    Heartbeat,
    Join,
    Leave,
    Leaver,
    SupportedProtocol,
    Sync,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.groups.consumer_group import ConsumerGroup, Member, TopicFacts, TopicsView
from millstream.groups.consumer_partitions import Partitions
from millstream.groups.migration import AnyGroup, AnyOutcome
from millstream.protocol.codec import encode
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from millstream.settings.groups import GroupSettings

SESSION_MS = 45_000
REBALANCE_MS = 60_000
GROUP_ID = "mill"
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"_")


def topics_of(**partitions: int) -> TopicsView:
    return {name: TopicFacts(topic_id(name), count) for name, count in partitions.items()}


def partitions_of(**numbers: set[int]) -> Partitions:
    return {topic_id(name): frozenset(found) for name, found in numbers.items() if found}


def subscription(*topics: str, version: int = 1, **owned: set[int]) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=topics,
        owned_partitions=[
            TopicPartition(topic=name, partitions=sorted(numbers))
            for name, numbers in owned.items()
        ],
    )
    return struct.pack(">h", version) + encode(message, version)


class ConsumerPlay:
    def __init__(self, settings: GroupSettings = SETTINGS, **topics: int) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.topics = topics_of(**(topics or {"a": 4}))
        self.any_group: AnyGroup | None = None
        self.records: list[object] = []
        self.answers: dict[int, Any] = {}
        """Those that no test has taken yet."""
        self._answered: set[int] = set()
        self._tickets = 0

    @property
    def group(self) -> ConsumerGroup:
        assert isinstance(self.any_group, ConsumerGroup)
        return self.any_group

    @property
    def classic_group(self) -> ClassicGroup:
        assert isinstance(self.any_group, ClassicGroup)
        return self.any_group

    @property
    def state(self) -> str:
        return "none" if self.any_group is None else self.any_group.state.value

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    # Members of the consumer protocol

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
        """Raises what the member is told."""
        self._tickets += 1
        command = ConsumerHeartbeat(
            ticket=self._tickets,
            member_id=member_id,
            member_epoch=epoch,
            client_id="client",
            client_host="/127.0.0.1",
            **fields,
        )
        self.take(
            migration.consumer_heartbeat(
                self.any_group,
                command,
                self.now_ms,
                group_id=GROUP_ID,
                topics=self.topics,
                settings=self.settings,
            )
        )
        reply = self.answer(self._tickets)
        assert isinstance(reply, ConsumerHeartbeatReply)
        return reply

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatReply:
        given = {
            "topics": topics or ("a",),
            "rebalance_timeout_ms": REBALANCE_MS,
            "owned": {},
            **fields,
        }
        return self.beat(member_id, 0, **given)

    def settle(self, *member_ids: str) -> None:
        """Have members do as they are told until there is nothing left to do."""
        for _ in range(10):
            for member_id in member_ids:
                current = self.member(member_id).current
                self.beat(member_id, current.epoch, owned=current.assigned)

    # Members of the classic protocol; each returns its ticket

    def classic_join(
        self,
        member_id: str,
        metadata: bytes,
        *,
        instance_id: str | None = None,
        new_member_id: str = "made",
        protocol: str = "cooperative-sticky",
        protocol_type: str = "consumer",
        must_return: bool = False,
        session_timeout_ms: int = 10_000,
    ) -> int:
        self._tickets += 1
        command = Join(
            ticket=self._tickets,
            member_id=member_id,
            instance_id=instance_id,
            client_id="old",
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=protocol_type,
            protocols=(SupportedProtocol(protocol, metadata),),
            new_member_id=new_member_id,
            must_return=must_return,
            may_skip_assignment=True,
        )
        self.take(
            migration.join(
                self.any_group,
                command,
                self.now_ms,
                group_id=GROUP_ID,
                topics=self.topics,
                settings=self.settings,
            )
        )
        return self._tickets

    def classic_sync(
        self, member_id: str, generation: int, *assignments: tuple[str, bytes], **fields: Any
    ) -> int:
        self._tickets += 1
        given: dict[str, Any] = {
            "instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "cooperative-sticky",
            **fields,
        }
        command = Sync(
            ticket=self._tickets,
            member_id=member_id,
            generation=generation,
            assignments=assignments,
            **given,
        )
        self.take(
            migration.sync(
                self.any_group, command, self.now_ms, topics=self.topics, settings=self.settings
            )
        )
        return self._tickets

    def classic_beat(
        self, member_id: str, generation: int, *, instance_id: str | None = None
    ) -> int:
        self._tickets += 1
        command = Heartbeat(self._tickets, member_id, instance_id, generation)
        self.take(
            migration.heartbeat(
                self.any_group, command, self.now_ms, topics=self.topics, settings=self.settings
            )
        )
        return self._tickets

    def classic_leave(self, *leavers: Leaver) -> int:
        self._tickets += 1
        self.take(
            migration.leave(
                self.any_group,
                Leave(self._tickets, leavers),
                self.now_ms,
                topics=self.topics,
                settings=self.settings,
            )
        )
        return self._tickets

    # Time and answers

    def answer(self, ticket: int) -> Any:
        value = self.answers.pop(ticket)
        if isinstance(value, MillstreamError):
            raise value
        return value

    def is_waiting(self, ticket: int) -> bool:
        return ticket not in self.answers

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        if self.any_group is not None:
            self.take(
                migration.tick(
                    self.any_group, self.now_ms, topics=self.topics, settings=self.settings
                )
            )

    def take(self, outcome: AnyOutcome) -> None:
        self.any_group = outcome.group
        self.records = list(outcome.records)
        for reply in outcome.replies:
            assert reply.ticket not in self._answered, "a ticket is answered once"
            self._answered.add(reply.ticket)
            self.answers[reply.ticket] = reply.value
