"""Settings of subscriptions: what they may cost."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionLimits:
    """How much one subscription may hold, and how many there may be."""

    max_in_flight: int = setting(
        "subscription.max.in.flight",
        10_000,
        Whole(1, 1_000_000),
        "Most messages of a subscription that are delivered and not acknowledged.",
    )
    read_ahead: int = setting(
        "subscription.read.ahead",
        1000,
        Whole(1, 1_000_000),
        "Most messages of a partition that are read before somebody asks for them.",
    )
    max_delayed: int = setting(
        "subscription.max.delayed",
        1_000_000,
        Whole(1, 100_000_000),
        "Most messages of a partition that wait for their time; those behind wait as well.",
    )

    max_count: int = setting(
        "subscription.max.count",
        10_000,
        Whole(1, 1_000_000),
        "Most subscriptions that there may be, of all topics; another one is refused.",
    )

    def __post_init__(self) -> None:
        check(self)
