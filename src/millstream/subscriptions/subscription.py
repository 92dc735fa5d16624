"""A subscription as it was asked for: its type, and what happens to what nobody acknowledges.

The types are Pulsar's. `exclusive`: one consumer. `failover`: one at a time, others stand by.
`shared`: each message goes to one of them. `key_shared`: those of one key go to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from millstream.errors import InvalidName, InvalidSetting
from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, OneOf, Whole
from millstream.settings.names import check_topic_name, is_internal_topic, is_topic_name

EARLIEST = "earliest"
LATEST = "latest"


class SubscriptionType(StrEnum):
    """Who gets which message."""

    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a subscription begins."""

    expected: str = f"{EARLIEST}, {LATEST} or an offset"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        if isinstance(value, int) and not isinstance(value, bool):
            return 0 <= value <= LONG_MAX
        return value in {EARLIEST, LATEST}


@dataclass(frozen=True, slots=True)
class _TopicOrNone:
    """The name of a topic, or none."""

    expected: str = "the name of a topic that is not the broker's own"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        if value is None:
            return True
        return isinstance(value, str) and is_topic_name(value) and not is_internal_topic(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """What is decided when a subscription is created. Raises InvalidSetting."""

    type: str = setting(
        "type",
        SubscriptionType.SHARED,
        OneOf(tuple(SubscriptionType)),
        "Who gets which message.",
    )
    ack_timeout_ms: int = setting(
        "ack_timeout_ms",
        30_000,
        Whole(1, INT_MAX),
        "A message that is not acknowledged within this time is delivered again.",
    )
    max_deliveries: int = setting(
        "max_deliveries",
        16,
        Whole(0, 30_000),
        "A message that was delivered this often in vain goes to the dead letters; 0 is never.",
    )
    dead_letter_topic: str | None = setting(
        "dead_letter_topic",
        None,
        _TopicOrNone(),
        "Where dead letters go; the topic's name and .dlq where none is named.",
    )
    redelivery_min_ms: int = setting(
        "redelivery_min_ms",
        1000,
        Whole(0, INT_MAX),
        "How long a refused message waits for its next delivery; twice as long each time.",
    )
    redelivery_max_ms: int = setting(
        "redelivery_max_ms",
        60_000,
        Whole(0, INT_MAX),
        "The longest such wait.",
    )
    start: str | int = field(
        default=EARLIEST,
        # It has done its work once the subscription exists.
        compare=False,
        metadata=setting("start", EARLIEST, _Start(), "Where it begins to read.").metadata,  # type: ignore[attr-defined]
    )

    def __post_init__(self) -> None:
        check(self)
        if self.redelivery_max_ms < self.redelivery_min_ms:
            raise InvalidSetting(
                name="redelivery_max_ms",
                value=self.redelivery_max_ms,
                expected=f"no less than redelivery_min_ms, which is {self.redelivery_min_ms}",
            )

    def backoff_ms(self, failures: int) -> int:
        """How long a message waits that was delivered this often in vain."""
        # No message is delivered so often that a larger power would make a difference.
        return min(self.redelivery_min_ms << min(failures - 1, 32), self.redelivery_max_ms)

    def is_dead(self, failures: int) -> bool:
        """Whether a message that was delivered this often in vain is given up."""
        return 0 < self.max_deliveries <= failures


def check_subscription_name(name: str) -> None:
    """Raises InvalidName."""
    if not is_topic_name(name):
        raise InvalidName(
            kind="subscription",
            name=name[:100],
            expected="1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or ..",
        )


def dead_letter_topic(topic: str, settings: SubscriptionSettings) -> str:
    """Where the dead letters of a topic's subscription go. Raises InvalidName, InvalidSetting."""
    name = settings.dead_letter_topic or f"{topic}.dlq"
    if name == topic:
        raise InvalidSetting(
            name="dead_letter_topic", value=name, expected="another topic than the one subscribed"
        )
    check_topic_name(name)
    return name
