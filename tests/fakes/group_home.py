"""A group coordinator with a log in memory, to be stopped and started again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from millstream.broker.groups import GroupCoordinator
from millstream.broker.state_log import StateLog
from millstream.clock import ManualClock
from millstream.groups.commands import Heartbeat, Join, Leave, Leaver, SupportedProtocol, Sync
from millstream.groups.consumer_group import TopicFacts
from millstream.groups.outcome import NO_TICKET
from millstream.records import ControlType, build_control
from millstream.settings.groups import GroupSettings
from millstream.settings.log import LogSettings
from millstream.storage.flusher import Flusher
from millstream.storage.memory_log import MemoryLog
from tests.fakes.simulated_flusher import SimulatedFlusher

GROUP = "mill"
T_ID = bytes(range(16))
SESSION_MS = 10_000
DELAY_MS = 100


class GroupHome:
    def __init__(
        self,
        clock: ManualClock,
        *,
        settings: GroupSettings | None = None,
        flusher: Flusher | None = None,
    ) -> None:
        self.clock = clock
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=DELAY_MS)
        self.flusher = flusher or SimulatedFlusher(lambda: 1)
        self.log = MemoryLog("__consumer_offsets/0", LogSettings(), clock)
        self.topics = {
            "t": TopicFacts(T_ID, partitions=2),
            "u": TopicFacts(bytes(16), partitions=1),
        }
        self._numbers = itertools.count(1)
        self.start()

    def start(self) -> None:
        self.groups = GroupCoordinator(
            self.state_log(),
            settings=self.settings,
            clock=self.clock,
            topics=lambda: self.topics,
            new_member_id=lambda name: f"{name}-{next(self._numbers)}",
        )

    def state_log(self) -> StateLog:
        return StateLog(self.log, self.flusher, clock=self.clock, max_decompressed_bytes=1 << 20)

    def end_transaction(
        self, producer_id: int, *, epoch: int = 0, is_commit: bool = True, told: bool = True
    ) -> None:
        """What the coordinator of transactions does; not `told`, it does only half of it."""
        marker = build_control(
            ControlType.COMMIT if is_commit else ControlType.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        [outcome] = self.log.append([marker])
        assert isinstance(outcome, int), outcome
        if told:
            self.groups.end_transaction(producer_id, is_commit=is_commit)

    def restart(self) -> None:
        self.groups.close()
        self.start()
        self.groups.replay()


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
