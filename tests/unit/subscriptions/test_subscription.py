"""What a subscription may be asked to be."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import InvalidName, InvalidSetting
from millstream.subscriptions.subscription import (
    SubscriptionSettings,
    SubscriptionType,
    check_subscription_name,
    dead_letter_topic,
)


@pytest.mark.parametrize(
    "values",
    [
        {"type": "fancy"},
        {"type": None},
        {"ack_timeout_ms": 0},
        {"ack_timeout_ms": 2**31},
        {"max_deliveries": -1},
        {"max_deliveries": True},
        {"dead_letter_topic": "no/name"},
        {"dead_letter_topic": "__subscriptions"},
        {"redelivery_min_ms": -1},
        {"redelivery_min_ms": 10, "redelivery_max_ms": 9},
        {"start": "middle"},
        {"start": -1},
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting) as refused:
        SubscriptionSettings(**values)
    assert refused.value.name in {*values, "redelivery_max_ms"}


def test_type_may_be_plain_text() -> None:
    assert SubscriptionSettings(type="shared") == SubscriptionSettings(
        type=SubscriptionType.SHARED, start="latest"
    )


def test_wait_doubles_up_to_the_longest() -> None:
    settings = SubscriptionSettings(redelivery_min_ms=100, redelivery_max_ms=1000)
    assert [settings.backoff_ms(n) for n in (1, 2, 3, 4, 5, 30_000)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert SubscriptionSettings(redelivery_min_ms=0, redelivery_max_ms=0).backoff_ms(9) == 0


def test_message_is_given_up_after_so_many_deliveries() -> None:
    assert not SubscriptionSettings(max_deliveries=3).is_dead(2)
    assert SubscriptionSettings(max_deliveries=3).is_dead(3)
    assert not SubscriptionSettings(max_deliveries=0).is_dead(30_000)


@pytest.mark.parametrize("name", ["", ".", "a/b", "a" * 250, "\ud800"])
def test_name_that_no_path_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidName):
        check_subscription_name(name)


def test_dead_letters_go_to_a_topic_of_their_own() -> None:
    assert dead_letter_topic("t", SubscriptionSettings()) == "t.dlq"
    assert dead_letter_topic("t", SubscriptionSettings(dead_letter_topic="d")) == "d"
    with pytest.raises(InvalidSetting):
        dead_letter_topic("t", SubscriptionSettings(dead_letter_topic="t"))
    with pytest.raises(InvalidName):
        dead_letter_topic("a" * 249, SubscriptionSettings())
