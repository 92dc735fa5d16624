"""Consumer groups: how far they have come, and letting them go on from elsewhere.

A group is moved only while nobody is in it who would not notice: the broker refuses it, with
NonEmptyGroup, as long as Kafka consumers are members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from millstream.client.frames import start_of
from millstream.client.messages import moment_ms
from millstream.client.rest import Rest, path_part

ResetStart = Literal["earliest", "latest"] | int | datetime


class GroupListing(NamedTuple):
    name: str
    state: str
    type: str
    """Of its protocol: classic or consumer."""


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class GroupOffset(NamedTuple):
    """How far a group has come in one partition."""

    topic: str
    partition: int
    offset: int | None
    """Of the message that comes next; None where nothing was committed."""
    end_offset: int | None
    lag: int | None
    """Messages that it has not had; None where the topic is gone."""
    metadata: str
    never_read: bool
    """Whether it has committed nothing of this partition: then all messages are its lag."""


class GroupDescription(NamedTuple):
    name: str
    state: str
    type: str
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]
    lag: int
    """Of all partitions."""


# Where a method is called list, the type needs another name.
GroupListings = list[GroupListing]


class AsyncGroups:
    """Consumer groups of a broker."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def list(self) -> GroupListings:
        result = await self._rest.ask("GET", "/groups")
        return [
            GroupListing(each["group"], each["state"], each["type"]) for each in result["groups"]
        ]

    async def describe(self, name: str) -> GroupDescription:
        """With how far it has come, and its lag. Raises UnknownGroup."""
        result = await self._rest.ask("GET", _path(name))
        members = tuple(
            GroupMember(**{field: each[field] for field in GroupMember._fields})
            for each in result["members"]
        )
        return GroupDescription(
            result["group"],
            result["state"],
            result["type"],
            members,
            _offsets(result),
            result["lag"],
        )

    async def commit(
        self, name: str, topic: str, offsets: Mapping[int, int], *, metadata: str = ""
    ) -> tuple[GroupOffset, ...]:
        """Go on from these offsets, by partition; all of them, or none.

        A group begins with its first commit. Returns how far it has come in all its topics. Raises
        UnknownTopic, OffsetOutOfRange, NonEmptyGroup.
        """
        wanted = [
            {"topic": topic, "partition": partition, "offset": offset, "metadata": metadata}
            for partition, offset in offsets.items()
        ]
        return _offsets(await self._rest.ask("POST", f"{_path(name)}/offsets", {"offsets": wanted}))

    async def reset(
        self,
        name: str,
        topic: str,
        start: ResetStart,
        *,
        partitions: Sequence[int] | None = None,
    ) -> tuple[GroupOffset, ...]:
        """Go on from the earliest, the latest, an offset or a time, in all partitions or in some.

        Returns how far it has come in all its topics. Raises UnknownTopic, OffsetOutOfRange,
        NonEmptyGroup.
        """
        wanted: dict[str, object] = {"topic": topic, **_target(start)}
        if partitions is not None:
            wanted["partitions"] = list(partitions)
        return _offsets(await self._rest.ask("POST", f"{_path(name)}/reset", wanted))

    async def delete(self, name: str) -> None:
        """Forget how far it has come. Raises UnknownGroup, NonEmptyGroup."""
        await self._rest.ask("DELETE", _path(name))


def _path(name: str) -> str:
    return f"/groups/{path_part(name, 'group')}"


def _target(start: ResetStart) -> dict[str, object]:
    """Raises TypeError, ValueError."""
    if isinstance(start, Mapping):
        raise TypeError("reset takes one place for all partitions: for several, use commit")
    start_of(start)
    if isinstance(start, datetime):
        return {"to": "timestamp", "timestamp": moment_ms(start)}
    return {"to": start} if isinstance(start, str) else {"to": "offset", "offset": start}


def _offsets(result: dict[str, Any]) -> tuple[GroupOffset, ...]:
    return tuple(
        GroupOffset(**{field: each[field] for field in GroupOffset._fields})
        for each in result["offsets"]
    )
