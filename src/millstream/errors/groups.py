"""What consumer groups refuse, and why."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict, Fenced, InvalidRequest, NotFound, Unavailable


@dataclass(eq=False, kw_only=True)
class MetadataTooLarge(InvalidRequest):
    """The text that comes with a committed offset is too long."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes, and offset.metadata.max.bytes is {self.limit_bytes}"


@dataclass(eq=False, kw_only=True)
class UnsupportedAssignor(InvalidRequest):
    """No assignor of the broker has this name."""

    name: str
    supported: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no assignor {self.name!r}: use one of {', '.join(self.supported)}"


@dataclass(eq=False, kw_only=True)
class InvalidTimeout(InvalidRequest):
    """A member asks for a session outside the limits."""

    timeout_ms: int
    minimum_ms: int
    maximum_ms: int

    def __str__(self) -> str:
        return (
            f"a session timeout of {self.timeout_ms} ms: expected {self.minimum_ms} to "
            f"{self.maximum_ms} ms"
        )


class UnknownGroup(NotFound):
    """There is no such group."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="group", name=name)


class UnknownMember(NotFound):
    """The group has no such member."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="group member", name=name)


@dataclass(eq=False, kw_only=True)
class IllegalGeneration(Conflict):
    """The member speaks of a generation that the group is not in."""

    generation: int
    current: int

    def __str__(self) -> str:
        return f"generation {self.generation} is not the group's, which is {self.current}"


@dataclass(eq=False)
class RebalanceInProgress(Conflict):
    """The group is being rebalanced."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} is rebalancing: join it again"


@dataclass(eq=False)
class MemberIdRequired(Conflict):
    """A new member must come back with the id it is given here."""

    member_id: str

    def __str__(self) -> str:
        return f"join again as {self.member_id!r}"


@dataclass(eq=False, kw_only=True)
class InconsistentProtocol(Conflict):
    """The members of the group have no protocol in common with this one."""

    group: str
    reason: str

    def __str__(self) -> str:
        return f"no protocol in common with group {self.group!r}: {self.reason}"


@dataclass(eq=False)
class NonEmptyGroup(Conflict):
    """The group has members."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} has members: stop them first"


class SubscribedGroup(NonEmptyGroup):
    """The group has members that read the topic."""


class FencedInstance(Fenced):
    """Another member has taken over a static identity."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(kind="static member", identity=instance_id, epoch=-1, current_epoch=-1)

    def __str__(self) -> str:
        return f"static member {self.identity!r} was replaced by another one with its identity"


class FencedMember(Fenced):
    """The member's epoch is neither its current one nor the one before."""

    def __init__(self, *, member_id: str, epoch: int, current_epoch: int) -> None:
        super().__init__(
            kind="member", identity=member_id, epoch=epoch, current_epoch=current_epoch
        )


class StaleMember(FencedMember):
    """The member's epoch is behind; a heartbeat brings it up to date."""


class UnreleasedInstance(FencedInstance):
    """A living member has this static identity."""

    def __str__(self) -> str:
        return f"static member {self.identity!r} is in use by a living member"


@dataclass(eq=False, kw_only=True)
class MemberTooLarge(InvalidRequest):
    """A member has more metadata, or a larger assignment, than the broker keeps."""

    member: str
    size: int
    limit: int

    def __str__(self) -> str:
        return (
            f"{self.size} bytes for group member {self.member!r}: at most {self.limit} are allowed "
            "(millstream.group.member.max.bytes)"
        )


@dataclass(eq=False, kw_only=True)
class GroupsFull(Unavailable):
    """Groups take as much memory as they may."""

    group: str
    limit: int

    def __str__(self) -> str:
        return (
            f"no room for more of group {self.group!r}: all groups together may take {self.limit} "
            "bytes of memory (millstream.groups.max.bytes)"
        )


@dataclass(eq=False, kw_only=True)
class GroupFull(Unavailable):
    """The group has as many members as it may have."""

    group: str
    limit: int

    def __str__(self) -> str:
        return f"group {self.group!r} has {self.limit} members, and may have no more"
