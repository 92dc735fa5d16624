"""How a subscription attaches to a connection, at first and again. Pure.

Invariant: over a new connection a reader of a log goes on exactly behind what it has handed out;
if the topic was deleted and created again meanwhile, at the beginning of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from millstream.client.frames import Frame, Start, start_of

QueueType = Literal["exclusive", "shared", "failover", "key_shared"]

_CREDITS_PER_PREFETCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadingPlan:
    """What readers of a log have in common, alone or as members of a group."""

    topic: str
    start: Start | None
    prefetch: int
    create: bool

    has_credit: ClassVar = True
    is_cumulative: ClassVar = True

    def __post_init__(self) -> None:
        """Raises TypeError, ValueError."""
        if self.start is not None:
            start_of(self.start)

    @property
    def credit_messages(self) -> int:
        """After how many processed messages the client grants the broker new credit."""
        return max(1, self.prefetch // _CREDITS_PER_PREFETCH)

    def check(self, operation: str) -> None:
        """Raises ValueError if it can do no such thing."""
        if operation in ("nack", "extend"):
            raise ValueError(f"only messages of a queue can {operation}: give subscription=")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan(_ReadingPlan):
    """Reads every message of a topic, from some place on."""

    cursor: str | None
    partitions: Sequence[int] | None

    is_shared: ClassVar = False

    def steps(self, positions: Mapping[int, int], *, is_first: bool) -> list[Frame]:
        """Requests that attach it, to be made one after the other."""
        frame: Frame = {"op": "subscribe", "topic": self.topic, "prefetch": self.prefetch}
        if self.partitions is not None:
            frame["partitions"] = list(self.partitions)
        if self.cursor is not None:
            frame["group"] = self.cursor
        if is_first:
            if self.start is not None:
                frame["from"] = start_of(self.start)
            if self.create:
                frame["create"] = True
            return [frame]
        # Only then to its place: the broker would begin where a group has committed, which may be
        # far behind; and it may turn out to be another topic of that name.
        return [{**frame, "from": "latest"}, {"op": "seek", "to": start_of(positions)}]

    def check(self, operation: str) -> None:
        """Raises ValueError if it can do no such thing."""
        if operation == "ack" and self.cursor is None:
            raise ValueError(
                "nothing to acknowledge: subscribe with cursor=, group= or subscription="
            )
        _ReadingPlan.check(self, operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(_ReadingPlan):
    """Reads those partitions of a topic that the group assigns to it, from where the group is."""

    group: str
    member: str
    """Its id in the group, over all connections."""

    is_shared: ClassVar = True

    def steps(self, _: Mapping[int, int], *, is_first: bool) -> list[Frame]:
        """Over a new connection it is the same member, and takes the place of the one before."""
        frame: Frame = {
            "op": "subscribe",
            "topic": self.topic,
            "group": self.group,
            "share": True,
            "member": self.member,
            "prefetch": self.prefetch,
        }
        if self.start is not None:
            frame["from"] = start_of(self.start)
        if self.create and is_first:
            frame["create"] = True
        return [frame]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """Shares the messages of a topic with other consumers of one subscription."""

    topic: str
    name: str
    type: QueueType | None
    start: Start | None
    consumer: str | None
    prefetch: int

    has_credit: ClassVar = False
    is_cumulative: ClassVar = False
    is_shared: ClassVar = True
    credit_messages: ClassVar = 0

    def __post_init__(self) -> None:
        """Raises TypeError, ValueError."""
        if self.start is not None:
            start_of(self.start)

    def steps(self, _: Mapping[int, int], *, is_first: bool) -> list[Frame]:
        frame: Frame = {
            "op": "queue",
            "topic": self.topic,
            "name": self.name,
            "prefetch": self.prefetch,
        }
        for field, value in (("type", self.type), ("consumer", self.consumer)):
            if value is not None:
                frame[field] = value
        if self.start is not None and is_first:
            frame["from"] = start_of(self.start)
        return [frame]

    def check(self, operation: str) -> None:
        """Raises ValueError if it can do no such thing."""
        if operation == "seek":
            raise ValueError("a queue has no position to seek: subscribe without subscription=")


Plan = LogPlan | GroupPlan | QueuePlan
