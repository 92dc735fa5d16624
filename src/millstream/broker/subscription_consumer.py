"""Somebody who receives messages of a subscription, and stays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from millstream.broker.subscription_host import Delivery, HostedSubscription, Waiter
from millstream.errors import InvalidSetting, SubscriptionConflict
from millstream.settings.domain import INT_MAX

if TYPE_CHECKING:
    from millstream.broker.subscriptions import Subscriptions

FRAME_BYTES = 1 << 20
"""What a consumer is given at once, but for a single message that is larger."""


class Consumer:
    """Somebody who receives messages of a subscription, until detached."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        hosted: HostedSubscription,
        number: int,
        name: str,
        max_in_flight: int,
    ) -> None:
        self.name = name
        self._subscriptions = subscriptions
        self._hosted = hosted
        self._number = number
        self._max_in_flight = max_in_flight

    @property
    def is_active(self) -> bool:
        """False for one that stands by until another has gone."""
        return self._hosted.is_active(self._number)

    @property
    def in_flight(self) -> int:
        """How many messages it has."""
        return self._hosted.tally.by_consumer.get(self._number, 0)

    async def receive(
        self, max_messages: int, wait_ms: int, *, max_bytes: int = FRAME_BYTES
    ) -> list[Delivery]:
        """Messages as soon as there are any for it; none if there are none in time.

        No more once there are so many bytes of them.
        """
        self._subscriptions.check_alive(self._hosted)
        if self._number not in self._hosted.consumers:
            raise SubscriptionConflict(
                topic=self._hosted.topic.name,
                name=self._hosted.name,
                reason=f"has no consumer {self.name!r} any more: it was detached",
            )
        check_whole("max_messages", max_messages)
        check_whole("max_bytes", max_bytes)
        waiter = Waiter(
            self._number,
            max_messages,
            max_in_flight=self._max_in_flight,
            timeout_ms=None,
            max_bytes=max_bytes,
        )
        return await self._hosted.receive(waiter, wait_ms)

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Messages that were received have reached nobody: they are received again, as new."""
        self._hosted.undo(deliveries)

    async def ack(self, message_ids: Iterable[str]) -> list[str]:
        """Messages are done; answered when that is on disk. Returns those that were before."""
        return await self._subscriptions.acknowledge(self._hosted, message_ids)

    async def nack(
        self, message_ids: Iterable[str], delay_ms: int | None = None, reason: str = ""
    ) -> list[str]:
        """Messages are to be delivered again, after a while. Returns those that it does not have.

        Nothing happens to those.
        """
        return await self._subscriptions.refuse(
            self._hosted, message_ids, self._number, delay_ms=delay_ms, reason=reason
        )

    async def extend(self, message_ids: Iterable[str], timeout_ms: int) -> None:
        """Give messages more time, from now. Raises NotInFlight."""
        self._subscriptions.prolong(self._hosted, message_ids, self._number, timeout_ms)

    def detach(self) -> None:
        """Go; what it has is delivered to others at once. Safe to call twice."""
        self._hosted.leave(self._number)


def check_whole(name: str, value: int) -> None:
    """Raises InvalidSetting for what is no count."""
    if not 1 <= value <= INT_MAX:
        raise InvalidSetting(name=name, value=value, expected=f"a whole number from 1 to {INT_MAX}")
