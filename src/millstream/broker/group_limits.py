"""How much memory groups may keep, all of them together: what is over the limit is refused.

Counted is what clients make the broker keep: the metadata and assignments of members, what they
subscribe to, and committed offsets. The count is an upper bound that only grows, by what each
request may add; when it reaches the limit, everything is counted anew. So requests that add nothing
cost next to nothing, and groups that go need not be noticed.

Invariant: a member that is known can always come again with what it has, and so can an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.broker.group_steps import Hosted
from millstream.clock import Clock
from millstream.errors import GroupsFull, MemberTooLarge
from millstream.groups.classic_group import ClassicGroup
from millstream.groups.classic_group import Member as ClassicMember
from millstream.groups.commands import Join, Sync
from millstream.groups.consumer_commands import ConsumerHeartbeat
from millstream.groups.consumer_group import Member as ConsumerMember
from millstream.groups.offsets import OffsetToCommit
from millstream.settings.groups import GroupSettings

_GROUP_BYTES: Final = 1000
_MEMBER_BYTES: Final = 1000
_TEXT_BYTES: Final = 60
_OFFSET_BYTES: Final = 300
"""What Python needs for one, besides its content."""
_RECOUNT_MS: Final = 1000
_RECOUNT_PART: Final = 16
"""While the limit is reached, everything is counted at most this often, or after this part of it
was added."""


class GroupLimits:
    """Admits what makes groups grow."""

    def __init__(
        self,
        hosted: Callable[[], Iterable[Hosted]],
        settings: Callable[[], GroupSettings],
        clock: Clock,
    ) -> None:
        self._hosted = hosted
        self._settings = settings
        self._clock = clock
        self._bytes = 0
        self._is_counted = False
        self._counted_bytes = 0
        self._count_again_ms = 0

    def check_join(self, hosted: Hosted, command: Join) -> None:
        """Raises MemberTooLarge, GroupsFull."""
        size = sum(len(name) + len(metadata) for name, metadata in command.protocols)
        size += _MEMBER_BYTES + _TEXT_BYTES * len(command.protocols)
        self._check_member(hosted, command.member_id, size)

    def check_heartbeat(self, hosted: Hosted, command: ConsumerHeartbeat) -> None:
        """Raises MemberTooLarge, GroupsFull."""
        size = _MEMBER_BYTES + len(command.regex or "")
        size += sum(map(len, command.topics or ())) + _TEXT_BYTES * len(command.topics or ())
        self._check_member(hosted, command.member_id, size)

    def check_sync(self, hosted: Hosted, command: Sync) -> None:
        """Raises MemberTooLarge, GroupsFull."""
        if not command.assignments:
            return
        limit = self._settings().member_max_bytes
        for member_id, assignment in command.assignments:
            if len(assignment) > limit:
                raise MemberTooLarge(member=member_id, size=len(assignment), limit=limit)
        group = hosted.group
        known = group.members if isinstance(group, ClassicGroup) else {}
        kept = sum(len(member.assignment) for member in known.values())
        self._add(hosted, sum(len(each) for _, each in command.assignments) - kept)

    def check_commit(self, hosted: Hosted, offsets: Sequence[OffsetToCommit]) -> None:
        """Raises GroupsFull."""
        known = hosted.offsets
        size = 0
        for each in offsets:
            found = known.get((each.topic, each.partition))
            if found is None:
                size += _OFFSET_BYTES + len(each.metadata)
            elif each.metadata:
                size += max(len(each.metadata) - len(found.metadata), 0)
        self._add(hosted, size)

    def _check_member(self, hosted: Hosted, member_id: str, size: int) -> None:
        limit = self._settings().member_max_bytes
        if size > limit:
            raise MemberTooLarge(member=member_id, size=size, limit=limit)
        group = hosted.group
        known = group.members.get(member_id) if group is not None else None
        self._add(hosted, size - (_size_of(known) if known is not None else 0))

    def _add(self, hosted: Hosted, size: int) -> None:
        if hosted.group is None and not hosted.has_offsets:
            size += _GROUP_BYTES
        if size <= 0:
            return
        limit = self._settings().groups_max_bytes
        if not self._is_counted or (self._bytes + size > limit and self._may_count(limit)):
            self._bytes = sum(map(_size_of_group, self._hosted()))
            self._is_counted = True
            self._counted_bytes = self._bytes
            self._count_again_ms = self._clock.now_ms() + _RECOUNT_MS
        if self._bytes + size > limit:
            raise GroupsFull(group=hosted.group_id, limit=limit)
        self._bytes += size

    def _may_count(self, limit: int) -> bool:
        """Whether it can have changed much since the last time."""
        has_grown = self._bytes - self._counted_bytes > limit // _RECOUNT_PART
        return has_grown or self._clock.now_ms() >= self._count_again_ms


def _size_of_group(hosted: Hosted) -> int:
    size = _GROUP_BYTES
    if hosted.group is not None:
        size += sum(map(_size_of, hosted.group.members.values()))
    for each in hosted.offsets.values():
        size += _OFFSET_BYTES + len(each.metadata)
    return size


def _size_of(member: ClassicMember | ConsumerMember) -> int:
    if isinstance(member, ClassicMember):
        size = sum(len(name) + len(metadata) for name, metadata in member.protocols)
        return size + _MEMBER_BYTES + _TEXT_BYTES * len(member.protocols) + len(member.assignment)
    topics = member.metadata.topics
    return _MEMBER_BYTES + sum(map(len, topics)) + _TEXT_BYTES * len(topics)
