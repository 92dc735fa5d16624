"""Leads one member from what it has to its target, a step for each time it speaks.

    STABLE ──────────────── a new target takes something away ─────────────► UNREVOKED_PARTITIONS
      ▲  ▲                                                                            │
      │  └── nothing more to wait for ──┐            it says that it gave it up ──────┤
      │                                 │                                             ▼
      └── what it waited for is free ── UNRELEASED_PARTITIONS ◄── others still hold some of it

Invariant: a partition is added to a member only while no other member holds it, and stops being
held only when its member no longer names it among what it owns.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.groups.consumer_group import (
    ConsumerGroup,
    CurrentAssignment,
    Member,
    MemberState,
    is_reconciled,
    target_of,
)
from millstream.groups.consumer_partitions import (
    NO_PARTITIONS,
    Partitions,
    difference,
    intersection,
    overlaps,
    union,
)


def reconciled(
    group: ConsumerGroup, member: Member, *, owned: Partitions | None
) -> CurrentAssignment:
    """The member's next step. `owned` is what it says it has; None if it says nothing."""
    current = member.current
    if is_reconciled(group, member):
        return current
    epoch = current.epoch
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, current.revoking):
            return current
        epoch += 1
    return _next_step(group, member, epoch=epoch, owned=owned)


def waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Whether something of the member's target is still held by another one."""
    wanted = difference(target_of(group, member.member_id), member.current.assigned)
    return bool(_held_by_others(group, member.member_id, wanted))


def _next_step(
    group: ConsumerGroup, member: Member, *, epoch: int, owned: Partitions | None
) -> CurrentAssignment:
    target = target_of(group, member.member_id)
    kept = intersection(member.current.assigned, target)
    revoking = difference(member.current.assigned, kept)
    if revoking and _still_owns(owned, revoking):
        return _moved(
            member.current,
            epoch=epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    wanted = difference(target, kept)
    unreleased = _held_by_others(group, member.member_id, wanted)
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    assigned = union(kept, difference(wanted, unreleased))
    return _moved(member.current, epoch=group.target_epoch, state=state, assigned=assigned)


def _moved(
    current: CurrentAssignment,
    *,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions = NO_PARTITIONS,
) -> CurrentAssignment:
    # A step within one epoch leaves the previous one: a member that missed several replies is
    # still where it was when it missed the first.
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    return replace(
        current,
        epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _still_owns(owned: Partitions | None, revoking: Partitions) -> bool:
    return owned is None or overlaps(revoking, owned)


def _held_by_others(group: ConsumerGroup, member_id: str, wanted: Partitions) -> Partitions:
    held = NO_PARTITIONS
    if not wanted:
        return held
    for other in group.members.values():
        if other.member_id != member_id:
            held = union(held, intersection(wanted, other.current.assigned))
            held = union(held, intersection(wanted, other.current.revoking))
    return held
