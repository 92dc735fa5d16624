"""What subscriptions refuse, and why."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, NotFound

_SHOWN = 5


@dataclass(eq=False)
class InvalidMessageId(InvalidRequest):
    """It is not the id of a message, or of none that there is yet."""

    message_id: str

    def __str__(self) -> str:
        return (
            f"{self.message_id!r} is no message of the topic: expected PARTITION:OFFSET, as "
            "received"
        )


class UnknownSubscription(NotFound):
    """There is no such subscription."""

    def __init__(self, topic: str, name: str) -> None:
        super().__init__(kind=f"subscription of topic {topic!r} called", name=name)
        self.topic = topic


@dataclass(eq=False, kw_only=True)
class SubscriptionConflict(Conflict):
    """A subscription is not as the caller takes it to be."""

    topic: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"subscription {self.name!r} of topic {self.topic!r} {self.reason}"


@dataclass(eq=False)
class NotInFlight(Conflict):
    """Messages are not, or no longer, in the hands of who wants more time for them."""

    message_ids: list[str]

    def __str__(self) -> str:
        shown = ", ".join(self.message_ids[:_SHOWN])
        shown += ", ..." if len(self.message_ids) > _SHOWN else ""
        return f"not in flight any more: {shown}; they are delivered again, or were acknowledged"
