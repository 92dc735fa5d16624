"""What members of a consumer-protocol group ask for, and what they are told."""

from __future__ import annotations

from typing import NamedTuple

from millstream.groups.consumer_partitions import Partitions
from millstream.groups.outcome import Ticket


class ConsumerHeartbeat(NamedTuple):
    """Join, go on, or leave, as the epoch says. None, and a timeout of -1, say: as before."""

    ticket: Ticket
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    """What the member has, when it changed."""
    new_member_id: str = ""
    """For a joining member without an id; empty where members must make up their own."""

    @property
    def is_full(self) -> bool:
        """Whether it says all there is to say, as members do when they do not know what we know."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


class ConsumerHeartbeatReply(NamedTuple):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None
    """None: as before."""
