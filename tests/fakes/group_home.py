"""A fake broker with two topics, and what members of a group ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from millstream.groups.commands import Heartbeat, Join, Leave, Leaver, SupportedProtocol, Sync
from millstream.groups.outcome import NO_TICKET
from millstream.settings.groups import GroupSettings
from millstream.settings.names import OFFSETS_TOPIC
from millstream.storage.local_log import LocalLog
from tests.fakes.transaction_home import TransactionHome

GROUP = "mill"
SESSION_MS = 10_000
DELAY_MS = 100


class GroupHome(TransactionHome):
    """A broker with topics `t`, of two partitions, and `u`, of one."""

    def __init__(self, **options: Any) -> None:
        groups = GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        super().__init__(**{"groups": groups, **options})

    async def start(self) -> Self:
        await super().start()
        for name, partitions in (("t", 2), ("u", 1)):
            if name not in self.shape():
                await self.topics.create(name, partitions=partitions, overrides={})
        return self

    @property
    def log(self) -> LocalLog:
        """The log of groups and offsets."""
        return self.topics.partition(OFFSETS_TOPIC, 0).log


def join(
    member_id: str = "",
    *,
    client_id: str = "c",
    instance_id: str | None = None,
    metadata: bytes = b"",
    must_return: bool = False,
    session_ms: int = SESSION_MS,
) -> Join:
    return Join(
        ticket=NO_TICKET,
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host="/127.0.0.1",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=(SupportedProtocol("range", metadata),),
        new_member_id="",
        must_return=must_return,
        may_skip_assignment=True,
    )


def sync(
    member_id: str, generation: int = 1, assignments: Mapping[str, bytes] | None = None
) -> Sync:
    parts = tuple((assignments or {}).items())
    return Sync(NO_TICKET, member_id, None, generation, None, None, parts)


def beat(member_id: str, generation: int = 1) -> Heartbeat:
    return Heartbeat(NO_TICKET, member_id, None, generation)


def leaving(member_id: str) -> Leave:
    return Leave(NO_TICKET, (Leaver(member_id, None),))


async def stable(home: GroupHome, metadata: bytes = b"") -> str:
    """A group of one member, which has its assignment; returns the member's id."""
    joined = await home.groups.join(GROUP, join(metadata=metadata))
    member_id = joined.member_id
    await home.groups.sync(GROUP, sync(member_id, joined.generation, {member_id: b"all"}))
    return member_id
