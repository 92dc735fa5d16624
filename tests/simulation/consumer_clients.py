"""Clients of one group, of either protocol, that lose requests and replies and take their time.

What is checked: a client that is a member owns nothing that the group does not hold for it. With
the group's own check, that no partition is held by two, no two members ever own the same.
"""

from __future__ import annotations

import struct
from random import Random

from millstream.errors import (
    FencedInstance,
    FencedMember,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    MillstreamError,
    RebalanceInProgress,
    UnknownMember,
    UnreleasedInstance,
)
from millstream.groups import migration
from millstream.groups.assignors import MemberSubscription
from millstream.groups.assignors.uniform import assign
from millstream.groups.commands import (
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    SupportedProtocol,
    Sync,
    Synced,
)
from millstream.groups.consumer_commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from millstream.groups.consumer_embedded_protocol import (
    by_topic_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from millstream.groups.consumer_group import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
)
from millstream.groups.consumer_partitions import (
    NO_PARTITIONS,
    Partitions,
    difference,
    intersection,
    is_subset,
    listed,
    union,
)
from millstream.groups.outcome import Ticket
from millstream.protocol.codec import encode
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tests.simulation.consumer_broker import GROUP_ID, SESSION_MS, SimulatedBroker, Violation

REBALANCE_TIMEOUT_MS = 15_000


class Client:
    """What both protocols share. `loss` is the chance that a request or a reply is lost."""

    def __init__(
        self, broker: SimulatedBroker, random: Random, topics: set[str], instance_id: str | None
    ) -> None:
        self.broker = broker
        self.random = random
        self.topics = topics
        self.instance_id = instance_id
        self.member_id = ""
        self.owned: Partitions = NO_PARTITIONS
        self.is_gone = False
        self.loss = 0.0
        self._is_deaf = False

    def act(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def on_reply(self, ticket: Ticket, value: object) -> None:
        raise NotImplementedError

    def forget_connection(self) -> None:
        """The broker has restarted."""

    @property
    def is_settled(self) -> bool:
        """Whether it owns what it was told to, and has said so."""
        return True

    def check(self) -> None:
        group = self.broker.group
        if self.is_gone or not isinstance(group, ConsumerGroup):
            return
        member = group.members.get(self.member_id)
        # Of a topic that is gone there is nothing to own.
        exist = {facts.topic_id for facts in self.broker.topics.values()}
        owned = {topic_id: self.owned[topic_id] for topic_id in self.owned if topic_id in exist}
        if member is not None and not is_subset(owned, member.current.held):
            raise Violation(f"{self.member_id} owns {self.owned}, but holds {member.current.held}")

    def _is_lost(self) -> bool:
        return self.random.random() < self.loss


class NewClient(Client):
    """Speaks the consumer protocol."""

    def __init__(
        self, broker: SimulatedBroker, random: Random, topics: set[str], instance_id: str | None
    ) -> None:
        super().__init__(broker, random, topics, instance_id)
        self.member_id = broker.new_id("new")
        self.epoch = 0
        self._goal: Partitions = NO_PARTITIONS
        self._is_unsure = True
        self._reported: Partitions | None = None
        self._slowness = 0
        self._uses_regex = random.random() < 0.2
        # Longer than a session: then it is no dead member that has the static identity.
        self._patience = 25

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and self.owned == self._goal == self._reported

    def act(self) -> None:
        if self.is_gone:
            return
        self._reconcile()
        self._send(self._heartbeat())

    def subscribe(self, topics: set[str]) -> None:
        self.topics = topics
        self._is_unsure = True

    def leave(self) -> None:
        """A static one sometimes for a while only."""
        is_static = self.instance_id is not None
        epoch = STATIC_LEAVE_EPOCH if is_static and self.random.random() < 0.7 else LEAVE_EPOCH
        self.owned = NO_PARTITIONS
        self.is_gone = True
        self._send(self._command(epoch))

    def on_reply(self, ticket: Ticket, value: object) -> None:
        if self._is_deaf or self.is_gone:
            return
        if isinstance(value, UnknownMember | FencedMember):
            self.owned = self._goal = NO_PARTITIONS
            self.epoch = 0
            self._is_unsure = True
        elif isinstance(value, FencedInstance):
            self.is_gone = True
        elif isinstance(value, UnreleasedInstance):
            self._patience -= 1
            self.is_gone = self._patience == 0
        elif isinstance(value, MillstreamError):
            raise Violation(f"{self.member_id} was told {value!r}")
        else:
            assert isinstance(value, ConsumerHeartbeatReply)
            self._take(value)

    def _take(self, reply: ConsumerHeartbeatReply) -> None:
        if reply.member_epoch < self.epoch:
            raise Violation(f"{self.member_id} goes from {self.epoch} to {reply.member_epoch}")
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self._goal = reply.assignment
            if difference(self.owned, self._goal):
                self._slowness = self.random.choice((0, 0, 1, 3, 30))
        self._reconcile()

    def _reconcile(self) -> None:
        """Give up first; only then take."""
        if difference(self.owned, self._goal) and self._slowness > 0:
            self._slowness -= 1
            return
        self.owned = self._goal

    def _heartbeat(self) -> ConsumerHeartbeat:
        is_full = self._is_unsure or self.epoch == 0
        owned = self.owned if is_full or self.owned != self._reported else None
        if not is_full:
            return self._command(self.epoch)._replace(owned=owned)
        return self._command(self.epoch)._replace(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            topics=None if self._uses_regex else tuple(sorted(self.topics)),
            regex="|".join(sorted(self.topics)) if self._uses_regex else None,
            owned=NO_PARTITIONS if self.epoch == 0 else owned,
        )

    def _command(self, epoch: int) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            ticket=0,
            member_id=self.member_id,
            member_epoch=epoch,
            client_id="client",
            client_host="/127.0.0.1",
            instance_id=self.instance_id,
        )

    def _send(self, command: ConsumerHeartbeat) -> None:
        if self._is_lost():
            self._is_unsure = True
            return
        self._is_deaf = self._is_lost()
        self._is_unsure = self._is_deaf
        if command.owned is not None and not self._is_deaf:
            self._reported = command.owned
        broker = self.broker
        broker.ask(
            self,
            lambda ticket: migration.consumer_heartbeat(
                broker.group,
                command._replace(ticket=ticket),
                broker.now_ms,
                group_id=GROUP_ID,
                topics=broker.topics,
                settings=broker.settings,
            ),
        )
        self._is_deaf = False


class OldClient(Client):
    """Speaks the classic protocol, eagerly (all is given up to join) or cooperatively."""

    def __init__(
        self,
        broker: SimulatedBroker,
        random: Random,
        topics: set[str],
        instance_id: str | None,
        *,
        is_eager: bool,
    ) -> None:
        super().__init__(broker, random, topics, instance_id)
        self.generation = -1
        self.is_eager = is_eager
        self._next = self._join
        self._ticket: Ticket | None = None
        self._joined: Joined | None = None

    @property
    def is_settled(self) -> bool:
        return self._next == self._heartbeat

    def act(self) -> None:
        if self.is_gone:
            return
        if self._ticket is not None:
            if self.random.random() < self.loss:
                self.broker.hang_up(self._ticket)
                self._ticket = None
            return
        self._next()

    def forget_connection(self) -> None:
        self._ticket = None

    def leave(self) -> None:
        self.owned = NO_PARTITIONS
        self.is_gone = True
        broker = self.broker
        leavers = (Leaver(self.member_id, self.instance_id),)
        broker.ask(
            self,
            lambda ticket: migration.leave(
                broker.group,
                Leave(ticket, leavers),
                broker.now_ms,
                topics=broker.topics,
                settings=broker.settings,
            ),
        )

    def on_reply(self, ticket: Ticket, value: object) -> None:
        self._ticket = None
        if self._is_deaf or self.is_gone:
            return
        if isinstance(value, MillstreamError):
            self._on_error(value)
        elif isinstance(value, Joined):
            self.member_id = value.member_id
            self.generation = value.generation
            self._joined = value
            self._next = self._sync
        elif isinstance(value, Synced):
            self._on_assigned(read_assignment(value.assignment, self.broker.topics))

    def _on_error(self, error: MillstreamError) -> None:
        self._next = self._join
        if isinstance(error, MemberIdRequired):
            self.member_id = error.member_id
        elif isinstance(error, UnknownMember):
            self.member_id = ""
            self.owned = NO_PARTITIONS
        elif isinstance(error, IllegalGeneration):
            self.owned = NO_PARTITIONS
        elif isinstance(error, FencedInstance | InconsistentProtocol):
            self.is_gone = True
        elif not isinstance(error, RebalanceInProgress):
            raise Violation(f"{self.member_id} was told {error!r}")

    def _on_assigned(self, assigned: Partitions) -> None:
        has_lost_some = bool(difference(self.owned, assigned))
        self.owned = assigned
        # A cooperative member that gave something up joins again, so that another can have it.
        self._next = self._join if has_lost_some else self._heartbeat

    def _join(self) -> None:
        if self.is_eager:
            self.owned = NO_PARTITIONS
        name = "range" if self.is_eager else "cooperative-sticky"
        broker = self.broker
        command = Join(
            ticket=0,
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol_type="consumer",
            protocols=(SupportedProtocol(name, self._subscription()),),
            new_member_id=broker.new_id("old"),
            must_return=True,
            may_skip_assignment=False,
        )
        self._send(
            lambda ticket: migration.join(
                broker.group,
                command._replace(ticket=ticket),
                broker.now_ms,
                group_id=GROUP_ID,
                topics=broker.topics,
                settings=broker.settings,
            )
        )

    def _sync(self) -> None:
        assert self._joined is not None
        broker = self.broker
        command = Sync(
            ticket=0,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=self._joined.protocol_name,
            assignments=self._led(self._joined),
        )
        self._send(
            lambda ticket: migration.sync(
                broker.group,
                command._replace(ticket=ticket),
                broker.now_ms,
                topics=broker.topics,
                settings=broker.settings,
            )
        )

    def _heartbeat(self) -> None:
        broker = self.broker
        command = Heartbeat(0, self.member_id, self.instance_id, self.generation)
        self._send(
            lambda ticket: migration.heartbeat(
                broker.group,
                command._replace(ticket=ticket),
                broker.now_ms,
                topics=broker.topics,
                settings=broker.settings,
            )
        )

    def _send(self, request: object) -> None:
        if self._is_lost():
            return
        self._is_deaf = self._is_lost()
        ticket = self.broker.ask(self, request)  # type: ignore[arg-type]  # a lambda of a ticket
        if ticket in self.broker._waiting:
            self._ticket = ticket
        self._is_deaf = False

    def _subscription(self) -> bytes:
        names = {facts.topic_id: name for name, facts in self.broker.topics.items()}
        message = ConsumerProtocolSubscription(
            topics=sorted(self.topics),
            owned_partitions=[
                TopicPartition(topic=names[topic_id], partitions=numbers)
                for topic_id, numbers in listed(self.owned)
                if topic_id in names
            ],
        )
        return struct.pack(">h", 1) + encode(message, 1)

    def _led(self, joined: Joined) -> tuple[tuple[str, bytes], ...]:
        """What a leader assigns: nobody gets what another still has."""
        if joined.leader_id != joined.member_id:
            return ()
        topics = self.broker.topics
        said = {m.member_id: read_subscription(m.metadata) for m in joined.members}
        owned = {m: by_topic_id(each.owned, topics) for m, each in said.items()}
        goal = assign(
            {
                m: MemberSubscription(
                    frozenset(topics[name].topic_id for name in each.topics if name in topics),
                    owned[m],
                )
                for m, each in said.items()
            },
            {facts.topic_id: facts.partitions for facts in topics.values()},
        )
        taken = NO_PARTITIONS
        for partitions in owned.values():
            taken = union(taken, partitions)
        given = {
            m: union(intersection(goal[m], owned[m]), difference(goal[m], taken)) for m in goal
        }
        return tuple((m, write_assignment(parts, topics, version=1)) for m, parts in given.items())
