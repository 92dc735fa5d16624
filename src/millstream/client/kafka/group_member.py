"""A member of a consumer group, of the classic kind, which every broker knows.

It says that it lives from a thread of its own, so that a caller who is busy with what it read keeps
its place. `must_join` becomes true when the group is to be shared out anew: then commit what was
read, and `join` again.

Invariant: between two calls of `join` nobody else of the group has this member's partitions.
After a crash: the broker gives them to others when `session_timeout_ms` is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Event, Thread
from types import TracebackType
from typing import Self

from millstream.client.kafka import group_offsets
from millstream.client.kafka.brokers import GROUP, Brokers, check_topic
from millstream.client.kafka.connection import Answer
from millstream.client.kafka.error_codes import (
    ILLEGAL_GENERATION,
    MEMBER_ID_REQUIRED,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    check,
)
from millstream.client.kafka.group_administration import assigned_places
from millstream.client.kafka.group_assignment import ASSIGNORS
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.client.kafka.places import Place, by_topic
from millstream.client.kafka.settings import ClusterSettings
from millstream.clock import Clock
from millstream.errors import MillstreamError, RefusedByBroker, Unavailable
from millstream.protocol.codec import decode_prefix, encode
from millstream.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from millstream.protocol.notation import Struct

SESSION_TIMEOUT_MS = 10_000
_REBALANCE_TIMEOUT_MS = 60_000
_HEARTBEAT_S = 1.0
_MARGIN_S = 5.0
# The leader looks this often whether topics have got more partitions.
_LOOK_BEATS = 30
_CONSUMER = "consumer"
_VERSION = b"\0\0"
_OVER = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS})


class GroupMember:
    """One member. To be used from one thread; it has another."""

    def __init__(
        self, settings: ClusterSettings, clock: Clock, group: str, topics: Iterable[str]
    ) -> None:
        # Connections of its own: to join may take long, and nobody else is to wait behind it.
        self._brokers = Brokers(settings)
        self._persistence = Persistence(self._brokers, clock)
        self._group = group
        self._topics = sorted(topics)
        self._member_id = ""
        self._generation = -1
        self._counts: dict[str, int] | None = None
        """Of the topics that it shared out, where it leads the group."""
        self._must_join = Event()
        self._must_join.set()
        self._is_left = Event()
        self._heart = Thread(target=self._beat, name="group-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    @property
    def must_join(self) -> bool:
        """Whether the partitions are about to be shared out anew, or were already."""
        return self._must_join.is_set()

    def wait(self, timeout_s: float) -> None:
        """Wait until `must_join`, but not for longer."""
        self._must_join.wait(timeout_s)

    def join(self) -> list[Place]:
        """Take part; returns what this member is to read. May wait for the others to come."""
        places = self._persistence.run(self._join)
        self._must_join.clear()
        if not self._heart.is_alive():
            self._heart.start()
        return places

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Tell how far it has come; False when somebody else has the partitions by now."""

        def attempt(patience: Patience) -> None:
            group_offsets.commit(
                self._brokers,
                self._group,
                offsets,
                patience,
                generation=self._generation,
                member_id=self._member_id,
            )

        if offsets:
            try:
                self._persistence.run(attempt)
            except RefusedByBroker as error:
                if error.code not in _OVER:
                    raise
                self._must_join.set()
                return False
        return True

    def leave(self) -> None:
        """Let the others have its partitions at once. It does not join again."""
        self._is_left.set()
        if self._heart.is_alive():
            self._heart.join()
        try:
            if self._member_id:
                self._leave()
        finally:
            self._brokers.close()

    def _leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self._group,
            member_id=self._member_id,
            members=[MemberIdentity(member_id=self._member_id)],
        )
        self._member_id = ""

        def attempt(patience: Patience) -> None:
            answer = self._ask(request, LeaveGroupResponse, patience, patience.left_s)
            if answer.error_code != UNKNOWN_MEMBER_ID:
                check(answer.error_code, f"leaving group {self._group!r}")

        self._persistence.run(attempt)

    # Joining

    def _join(self, patience: Patience) -> list[Place]:
        while True:
            joined = self._ask(
                self._join_request(),
                JoinGroupResponse,
                patience,
                _REBALANCE_TIMEOUT_MS / 1000 + _MARGIN_S,
            )
            if joined.error_code == MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
                continue
            if joined.error_code == UNKNOWN_MEMBER_ID:
                self._member_id = ""
                continue
            check(joined.error_code, f"joining group {self._group!r}")
            self._member_id, self._generation = joined.member_id, joined.generation_id
            synced = self._sync(joined, patience)
            if synced.error_code in _OVER:
                continue
            check(synced.error_code, f"sharing out group {self._group!r}")
            return assigned_places(bytes(synced.assignment))

    def _join_request(self) -> JoinGroupRequest:
        wish = ConsumerProtocolSubscription(topics=self._topics, user_data=None)
        metadata = _VERSION + encode(wish, 0)
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=_CONSUMER,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in ASSIGNORS
            ],
        )

    def _sync(self, joined: JoinGroupResponse, patience: Patience) -> SyncGroupResponse:
        self._counts = None
        shares = self._share_out(joined, patience) if joined.leader == joined.member_id else []
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_CONSUMER,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        wait_s = _REBALANCE_TIMEOUT_MS / 1000 + _MARGIN_S
        return self._ask(request, SyncGroupResponse, patience, wait_s)

    def _share_out(
        self, joined: JoinGroupResponse, patience: Patience
    ) -> list[SyncGroupRequestAssignment]:
        wishes = {}
        for each in joined.members:
            wish, _ = decode_prefix(
                ConsumerProtocolSubscription, 0, bytes(each.metadata), len(_VERSION)
            )
            wishes[each.member_id] = frozenset(wish.topics)
        self._counts = self._partition_counts(frozenset().union(*wishes.values()), patience)
        shares = ASSIGNORS[joined.protocol_name or "range"](wishes, self._counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=_assignment(places))
            for member, places in shares.items()
        ]

    def _partition_counts(self, topics: Iterable[str], patience: Patience) -> dict[str, int]:
        counts = {}
        for told in self._brokers.topics(sorted(topics), patience):
            if told.name in self._topics:
                check_topic(told)
            # What others want may be gone; they will see.
            if told.error_code == NONE:
                counts[told.name or ""] = len(told.partitions)
        return counts

    # Staying

    def _beat(self) -> None:
        beats = 0
        while not self._is_left.wait(_HEARTBEAT_S):
            beats += 1
            if self._must_join.is_set():
                continue
            try:
                self._say_alive(look=beats % _LOOK_BEATS == 0)
            except Unavailable:
                # Whoever coordinates may have moved; the next beat asks who it is.
                self._brokers.forget()
            except MillstreamError:
                # To join again tells the caller what is wrong.
                self._must_join.set()

    def _say_alive(self, *, look: bool) -> None:
        patience = self._persistence.patience()
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        answer = self._ask(request, HeartbeatResponse, patience, patience.left_s)
        counts = self._counts
        is_grown = (
            look and counts is not None and self._partition_counts(counts, patience) != counts
        )
        if answer.error_code in _OVER or is_grown:
            self._must_join.set()
        else:
            check(answer.error_code, f"a heartbeat of group {self._group!r}")

    def _ask(
        self, request: Struct, answer: type[Answer], patience: Patience, timeout_s: float
    ) -> Answer:
        address = self._brokers.coordinator(GROUP, self._group, patience)
        return self._brokers.ask(address, request, answer, timeout_s)


def _assignment(places: Iterable[Place]) -> bytes:
    partitions = [
        TopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(places).items()
    ]
    return _VERSION + encode(
        ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=None), 0
    )
