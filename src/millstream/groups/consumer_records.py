"""What is stored of consumer-protocol groups, as values. Their bytes: `consumer_records_format`.

A transition does not say what to store: records are the difference between a group before and
after it. In each, None says that the thing is gone.

Invariant: applying the records between two groups to the first gives the second, deadlines apart.
After a crash: a compacted log may have dropped any record that a later one replaces, so records of
one group come in any order, and each stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from millstream.groups.consumer_group import (
    ConsumerGroup,
    CurrentAssignment,
    Member,
    MemberMetadata,
    MemberState,
)
from millstream.groups.consumer_partitions import Partitions
from millstream.settings.groups import GroupSettings


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int


class GroupEpochRecord(NamedTuple):
    group_id: str
    value: GroupEpoch | None


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: MemberMetadata | None


class TargetEpochRecord(NamedTuple):
    group_id: str
    value: int | None


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Partitions | None


class CurrentRecord(NamedTuple):
    group_id: str
    member_id: str
    value: CurrentAssignment | None


ConsumerRecord = GroupEpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord


def records_between(
    before: ConsumerGroup | None, after: ConsumerGroup | None
) -> tuple[ConsumerRecord, ...]:
    """What to store so that a replay gets from one to the other; None is no group."""
    if before is after:
        return ()
    some = after or before
    assert some is not None, "two that are not the same are not both None"
    blank = ConsumerGroup(group_id=some.group_id)
    return tuple(_differences(before, after, blank))


def _differences(
    before: ConsumerGroup | None, after: ConsumerGroup | None, blank: ConsumerGroup
) -> Iterator[ConsumerRecord]:
    group_id = blank.group_id
    old, new = before or blank, after or blank
    yield from _member_differences(old, new)
    if before is None or after is None or _epoch_of(old) != _epoch_of(new):
        yield GroupEpochRecord(group_id, _epoch_of(new) if after is not None else None)
    if old.target is not new.target:
        for member_id in _touched(old.target, new.target):
            if old.target.get(member_id) != new.target.get(member_id):
                yield TargetRecord(group_id, member_id, new.target.get(member_id))
    if after is None or old.target_epoch != new.target_epoch:
        yield TargetEpochRecord(group_id, new.target_epoch if after is not None else None)


def _member_differences(old: ConsumerGroup, new: ConsumerGroup) -> Iterator[ConsumerRecord]:
    if old.members is new.members:
        return
    for member_id in _touched(old.members, new.members):
        was, now = old.members.get(member_id), new.members.get(member_id)
        if was is now:
            continue
        if was is None or now is None or was.metadata != now.metadata:
            yield MemberRecord(new.group_id, member_id, now.metadata if now else None)
        if was is None or now is None or was.current != now.current:
            yield CurrentRecord(new.group_id, member_id, now.current if now else None)


def _touched(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    yield from new
    yield from (member_id for member_id in old if member_id not in new)


def _epoch_of(group: ConsumerGroup) -> GroupEpoch:
    return GroupEpoch(group.epoch, group.metadata_hash)


def apply(group: ConsumerGroup | None, record: ConsumerRecord) -> ConsumerGroup | None:
    """The group after a stored record; None while there is nothing of it."""
    if group is None:
        if record.value is None:
            return None
        group = ConsumerGroup(group_id=record.group_id)
    if isinstance(record, GroupEpochRecord):
        if record.value is None:
            return None
        epoch, metadata_hash = record.value
        return replace(group, epoch=epoch, metadata_hash=metadata_hash)
    if isinstance(record, TargetEpochRecord):
        return replace(group, target_epoch=record.value or 0)
    if isinstance(record, TargetRecord):
        target = dict(group.target)
        if record.value is None:
            target.pop(record.member_id, None)
        else:
            target[record.member_id] = record.value
        return replace(group, target=target)
    return _apply_to_member(group, record)


def _apply_to_member(group: ConsumerGroup, record: MemberRecord | CurrentRecord) -> ConsumerGroup:
    members = dict(group.members)
    if record.value is None:
        members.pop(record.member_id, None)
        return replace(group, members=members)
    member = members.get(record.member_id) or Member(member_id=record.member_id)
    if isinstance(record.value, MemberMetadata):
        members[record.member_id] = replace(member, metadata=record.value)
    else:
        members[record.member_id] = replace(member, current=record.value)
    return replace(group, members=members)


def restored(group: ConsumerGroup, now_ms: int, settings: GroupSettings) -> ConsumerGroup:
    """A group whose records have all been applied: every member gets its time anew."""
    members = {
        member_id: replace(
            member,
            session_deadline_ms=now_ms + session_timeout_ms(member, settings),
            rebalance_deadline_ms=_rebalance_deadline_ms(member, now_ms),
        )
        for member_id, member in group.members.items()
    }
    return replace(group, members=members)


def session_timeout_ms(member: Member, settings: GroupSettings) -> int:
    """A member of the classic protocol chose its own."""
    classic = member.metadata.classic
    return classic.session_timeout_ms if classic else settings.consumer_session_timeout_ms


def _rebalance_deadline_ms(member: Member, now_ms: int) -> int | None:
    if member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.has_left_for_now:
        return now_ms + member.metadata.rebalance_timeout_ms
    return None
