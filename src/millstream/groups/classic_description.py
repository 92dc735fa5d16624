"""What people are shown of a classic group."""

from __future__ import annotations

from typing import NamedTuple

from millstream.groups.classic_group import ClassicGroup, ClassicState


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[MemberDescription, ...] = ()


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str
    """`classic` or `consumer`."""


def describe(group: ClassicGroup) -> GroupDescription:
    """Subscriptions and assignments are shown while they hold: in a Stable group."""
    is_stable = group.state is ClassicState.STABLE
    return GroupDescription(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )
