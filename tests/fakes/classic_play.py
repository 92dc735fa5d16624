"""A classic group played by hand: requests go in, answers are collected, time moves when told."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.errors import MillstreamError
from millstream.groups import classic_transitions as transitions
from millstream.groups.classic_group import ClassicGroup, Member, from_record, new_group
from millstream.groups.classic_rebalance import ClassicOutcome
from millstream.groups.commands import (
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaver,
    Left,
    SupportedProtocol,
    Sync,
    Synced,
)
from millstream.groups.group_records import ClassicRecord, GroupMetadata
from millstream.settings.groups import GroupSettings

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)


def protocols(*names: str, metadata: bytes = b"topics") -> tuple[SupportedProtocol, ...]:
    return tuple(SupportedProtocol(name, metadata) for name in names)


class Play:
    """Keeps the group, and the answer to each ticket."""

    def __init__(self, settings: GroupSettings = SETTINGS, group_id: str = "mill") -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.answers: dict[int, object] = {}
        self.records: list[ClassicRecord] = []
        self._group: ClassicGroup | None = None
        self._group_id = group_id
        self._tickets = 0

    @property
    def group(self) -> ClassicGroup:
        return self._group or new_group(self._group_id, self.now_ms)

    @property
    def is_gone(self) -> bool:
        return self._group is None

    def member(self, member_id: str) -> Member:
        return self.group.members[member_id]

    # Requests; each returns its ticket

    def join(
        self,
        member_id: str = "",
        *,
        new_id: str = "",
        instance_id: str | None = None,
        supported: tuple[SupportedProtocol, ...] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        must_return: bool = False,
        may_skip: bool = True,
    ) -> int:
        command = Join(
            ticket=self._ticket(),
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols("range") if supported is None else supported,
            new_member_id=new_id,
            must_return=must_return,
            may_skip_assignment=may_skip,
        )
        self._take(transitions.join(self.group, command, self.now_ms, self.settings))
        return command.ticket

    def sync(
        self,
        member_id: str,
        assigned: Mapping[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_name: str | None = None,
        **assignments: bytes,
    ) -> int:
        command = Sync(
            ticket=self._ticket(),
            member_id=member_id,
            instance_id=instance_id,
            generation=self.group.generation if generation is None else generation,
            protocol_type=None,
            protocol_name=protocol_name,
            assignments=tuple((assigned or assignments).items()),
        )
        self._take(transitions.sync(self.group, command, self.now_ms, self.settings))
        return command.ticket

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> object:
        command = Heartbeat(
            ticket=self._ticket(),
            member_id=member_id,
            instance_id=instance_id,
            generation=self.group.generation if generation is None else generation,
        )
        self._take(transitions.heartbeat(self.group, command, self.now_ms))
        return self.answers[command.ticket]

    def leave(self, *leavers: str | Leaver) -> tuple[MillstreamError | None, ...]:
        command = Leave(
            ticket=self._ticket(),
            leavers=tuple(
                leaver if isinstance(leaver, Leaver) else Leaver(leaver, None) for leaver in leavers
            ),
        )
        self._take(transitions.leave(self.group, command, self.now_ms, self.settings))
        left = self.answers[command.ticket]
        assert isinstance(left, Left)
        return left.results

    def drop_join(self, ticket: int) -> None:
        """The connection closes over which a member waits to join."""
        self._take(transitions.drop_join(self.group, ticket, self.now_ms, self.settings))

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass, with a tick whenever the group has a deadline."""
        end_ms = self.now_ms + milliseconds
        while self._group is not None:
            deadline_ms = transitions.deadline_of(self._group)
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self._take(transitions.tick(self._group, self.now_ms, self.settings))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Everything but what was stored is lost."""
        newest = self.records[-1] if self.records else None
        stored = isinstance(newest, GroupMetadata)
        self._group = from_record(newest, self.now_ms) if stored else None  # type: ignore[arg-type]

    # Answers

    def joined(self, ticket: int) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined), answer
        return answer

    def synced(self, ticket: int) -> Synced:
        answer = self.answers[ticket]
        assert isinstance(answer, Synced), answer
        return answer

    # Whole scenes

    def stable(self, *member_ids: str, **instance_ids: str) -> None:
        """An empty group becomes stable with members, the first one leading."""
        for member_id in member_ids:
            self.join(new_id=member_id, instance_id=instance_ids.get(member_id))
        self.pass_ms(2 * self.settings.initial_rebalance_delay_ms)
        self.settle(*member_ids)

    def settle(self, *member_ids: str) -> None:
        """All sync, with an assignment that says whose it is."""
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        for member_id in reversed(member_ids):
            leads = member_id == self.group.leader_id
            self.sync(member_id, assignments if leads else None)
        for member_id in member_ids:
            self.sync(member_id)

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets

    def _take(self, outcome: ClassicOutcome) -> None:
        self._group = outcome.group
        self.records += outcome.records
        for reply in outcome.replies:
            assert reply.ticket not in self.answers, "a ticket is answered once"
            self.answers[reply.ticket] = reply.value
