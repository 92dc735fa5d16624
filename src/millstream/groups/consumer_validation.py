"""Which requests a consumer group refuses, and why. Everything here only raises."""

from __future__ import annotations

from millstream.errors import (
    FencedInstance,
    FencedMember,
    IllegalGeneration,
    InvalidRequest,
    StaleMember,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from millstream.groups.assignors import ASSIGNORS
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_group import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    Member,
    static_member,
)
from millstream.groups.consumer_partitions import is_subset
from millstream.groups.consumer_regex import compiled

_LONGEST_ID_BYTES = 32767
"""What the key of a record can hold."""


def check_request(command: ConsumerHeartbeat) -> None:
    """What can be said of a heartbeat without looking at the group."""
    if command.instance_id == "" or command.rack_id == "":
        raise InvalidRequest(
            "instance id and rack id are left out or have a value, not an empty one"
        )
    if command.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest(f"member epoch {command.member_epoch}: the lowest is -2")
    if command.rebalance_timeout_ms < -1:
        raise InvalidRequest(f"a rebalance timeout of {command.rebalance_timeout_ms} ms")
    if command.member_epoch == STATIC_LEAVE_EPOCH and command.instance_id is None:
        raise InvalidRequest("only a member with an instance id leaves for a while (epoch -2)")
    if command.member_epoch == JOIN_EPOCH:
        _check_join(command)
    elif not command.member_id:
        raise InvalidRequest("only a member that joins has no member id")
    if len(command.member_id.encode()) > _LONGEST_ID_BYTES:
        raise InvalidRequest(f"a member id has at most {_LONGEST_ID_BYTES} bytes")
    if command.assignor is not None and command.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(name=command.assignor, supported=tuple(ASSIGNORS))
    if command.regex:
        compiled(command.regex)


def _check_join(command: ConsumerHeartbeat) -> None:
    if not (command.member_id or command.new_member_id):
        raise InvalidRequest("a member makes up its own id")
    if command.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins says its rebalance timeout")
    if command.owned is None or command.owned:
        raise InvalidRequest("a member that joins owns no partition, and says so")
    if command.topics is None and command.regex is None:
        raise InvalidRequest("a member that joins says what it subscribes to")


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """The member in whose name a request comes."""
    if instance_id is not None:
        member = static_member(group, instance_id)
        if member is not None and member.member_id != member_id:
            raise FencedInstance(instance_id)
    else:
        member = group.members.get(member_id)
    if member is None:
        raise UnknownMember(member_id)
    return member


def check_epoch(member: Member, command: ConsumerHeartbeat) -> None:
    """The epoch is the member's; or its last, if the reply that told of the new one was lost."""
    current = member.current
    if command.member_epoch == current.epoch and not member.speaks_classic:
        return
    missed_reply = (
        command.member_epoch == current.previous_epoch
        and command.member_epoch < current.epoch
        and command.owned is not None
        and is_subset(command.owned, current.assigned)
    )
    if member.speaks_classic or not missed_reply:
        raise FencedMember(
            member_id=member.member_id, epoch=command.member_epoch, current_epoch=current.epoch
        )


def check_released(member: Member, new_member_id: str) -> None:
    """A static identity can be taken over once its member has left, or by itself."""
    if not (member.has_left_for_now or member.speaks_classic or member.member_id == new_member_id):
        assert member.metadata.instance_id is not None, "it was found by its identity"
        raise UnreleasedInstance(member.metadata.instance_id)


def check_commit(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    """Whether offsets may be committed in a member's name.

    An epoch below zero comes from outside of the group, which is right while it has no members.
    """
    if epoch < 0 and not group.members:
        return
    _check_member_epoch(group, member_id, epoch)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Whether offsets may be fetched in a member's name; nobody's name is fine."""
    if not member_id and epoch < 0:
        return
    _check_member_epoch(group, member_id or "", epoch)


def _check_member_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMember(member_id)
    current = member.current.epoch
    if epoch == current:
        return
    if member.speaks_classic:
        raise IllegalGeneration(generation=epoch, current=current)
    raise StaleMember(member_id=member_id, epoch=epoch, current_epoch=current)
