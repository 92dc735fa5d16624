"""Consumer groups of a cluster: who is in them, how far they have come, and changing that.

A group's members are told alike, whichever of Kafka's two protocols the group has.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.client.kafka.brokers import GROUP, Brokers
from millstream.client.kafka.connection import Answer
from millstream.client.kafka.error_codes import GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, check
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.client.kafka.places import Place
from millstream.errors import MalformedMessage, NonEmptyGroup, UnknownGroup
from millstream.protocol.codec import decode_prefix
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millstream.protocol.messages.consumer_group_describe import Member as ConsumerMember
from millstream.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from millstream.protocol.notation import Struct

_CONSUMER = "consumer"
_DEAD = "Dead"
_NO_OFFSET = -1
_VERSION_BYTES = 2


class GroupListing(NamedTuple):
    name: str
    state: str
    """Kafka's word: Stable, Empty and so on; empty where a broker is too old to tell."""
    kind: str
    """`classic` or `consumer`: the protocol that its members speak."""
    protocol_type: str


class GroupMemberDescription(NamedTuple):
    """Who reads, from where, and what."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    places: tuple[Place, ...]


class GroupDescription(NamedTuple):
    name: str
    state: str
    kind: str
    assignor: str
    members: tuple[GroupMemberDescription, ...]
    offsets: dict[Place, int]
    """What it has committed."""


class GroupAdministration:
    """What can be asked about groups, and done to them."""

    def __init__(self, brokers: Brokers, persistence: Persistence) -> None:
        self._brokers = brokers
        self._persistence = persistence

    def list(self) -> list[GroupListing]:
        """All groups of all brokers."""

        def attempt(patience: Patience) -> list[GroupListing]:
            found = {}
            for address in self._brokers.everyone(patience):
                answer = self._brokers.ask(
                    address, ListGroupsRequest(), ListGroupsResponse, patience.left_s
                )
                check(answer.error_code, "listing groups")
                for each in answer.groups:
                    kind = each.group_type.lower() or "classic"
                    found[each.group_id] = GroupListing(
                        each.group_id, each.group_state, kind, each.protocol_type
                    )
            return sorted(found.values())

        return self._persistence.run(attempt)

    def describe(self, group: str) -> GroupDescription:
        """Raises UnknownGroup."""
        listing = {each.name: each for each in self.list()}.get(group)
        if listing is None:
            raise UnknownGroup(group)
        offsets = self.offsets(group)
        if listing.kind == _CONSUMER:
            return self._describe_consumers(group, offsets)
        return self._describe_classic(group, offsets)

    def offsets(self, group: str) -> dict[Place, int]:
        """All that a group has committed; nothing for one that is not there."""
        request = OffsetFetchRequest(group_id=group, topics=None)
        what = f"reading the offsets of group {group!r}"

        def attempt(patience: Patience) -> dict[Place, int]:
            answer = self._ask(group, request, OffsetFetchResponse, patience)
            check(answer.error_code, what)
            found = {}
            for topic in answer.topics:
                for told in topic.partitions:
                    check(told.error_code, what)
                    if told.committed_offset != _NO_OFFSET:
                        found[topic.name, told.partition_index] = told.committed_offset
            return dict(sorted(found.items()))

        return self._persistence.run(attempt)

    def delete(self, group: str) -> None:
        """Forget a group that has no members. Raises UnknownGroup, NonEmptyGroup."""

        def attempt(patience: Patience) -> None:
            request = DeleteGroupsRequest(groups_names=[group])
            [told] = self._ask(group, request, DeleteGroupsResponse, patience).results
            if told.error_code == GROUP_ID_NOT_FOUND:
                raise UnknownGroup(group)
            if told.error_code == NON_EMPTY_GROUP:
                raise NonEmptyGroup(group)
            check(told.error_code, f"deleting group {group!r}")

        self._persistence.run(attempt)

    def _describe_classic(self, group: str, offsets: dict[Place, int]) -> GroupDescription:
        def attempt(patience: Patience) -> GroupDescription:
            request = DescribeGroupsRequest(groups=[group])
            [told] = self._ask(group, request, DescribeGroupsResponse, patience).groups
            check(told.error_code, f"describing group {group!r}")
            if told.group_state == _DEAD and not offsets:
                raise UnknownGroup(group)
            members = tuple(_classic_member(each) for each in told.members)
            return GroupDescription(
                group, told.group_state, "classic", told.protocol_data, members, offsets
            )

        return self._persistence.run(attempt)

    def _describe_consumers(self, group: str, offsets: dict[Place, int]) -> GroupDescription:
        def attempt(patience: Patience) -> GroupDescription:
            request = ConsumerGroupDescribeRequest(group_ids=[group])
            [told] = self._ask(group, request, ConsumerGroupDescribeResponse, patience).groups
            if told.error_code == GROUP_ID_NOT_FOUND:
                raise UnknownGroup(group)
            check(told.error_code, f"describing group {group!r}", told.error_message)
            members = tuple(_consumer_member(each) for each in told.members)
            return GroupDescription(
                group, told.group_state, _CONSUMER, told.assignor_name, members, offsets
            )

        return self._persistence.run(attempt)

    def _ask(self, group: str, request: Struct, answer: type[Answer], patience: Patience) -> Answer:
        address = self._brokers.coordinator(GROUP, group, patience)
        return self._brokers.ask(address, request, answer, patience.left_s)


def _classic_member(told: DescribedGroupMember) -> GroupMemberDescription:
    return GroupMemberDescription(
        told.member_id,
        told.group_instance_id,
        told.client_id,
        told.client_host,
        tuple(assigned_places(bytes(told.member_assignment))),
    )


def _consumer_member(told: ConsumerMember) -> GroupMemberDescription:
    places = [
        (topic.topic_name, number)
        for topic in told.assignment.topic_partitions
        for number in topic.partitions
    ]
    return GroupMemberDescription(
        told.member_id, told.instance_id, told.client_id, told.client_host, tuple(sorted(places))
    )


def assigned_places(assignment: bytes) -> list[Place]:
    """What a member of a classic group is to read; nothing where that is not said as consumers do.

    Every version begins like the first one.
    """
    if len(assignment) <= _VERSION_BYTES:
        return []
    try:
        parsed, _ = decode_prefix(ConsumerProtocolAssignment, 0, assignment, _VERSION_BYTES)
    except MalformedMessage:
        return []
    return sorted(
        (each.topic, number) for each in parsed.assigned_partitions for number in each.partitions
    )
