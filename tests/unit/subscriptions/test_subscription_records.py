"""The bytes of subscriptions: there and back."""

from __future__ import annotations

import pytest

from millstream.errors import MalformedMessage
from millstream.subscriptions.progress import Block, Changes, Failure, Head
from millstream.subscriptions.subscription import SubscriptionSettings
from millstream.subscriptions.subscription_records import (
    StoredBlock,
    StoredHead,
    StoredSubscription,
    decode,
    encode_block,
    encode_changes,
    encode_head,
    encode_subscription,
)

SETTINGS = SubscriptionSettings(
    type="key_shared",
    ack_timeout_ms=7,
    max_deliveries=30_000,
    dead_letter_topic="graves",
    redelivery_min_ms=0,
    redelivery_max_ms=2**31 - 1,
)
BLOCK = Block(
    1 << 1023 | 0b101,
    {5 * 1024 + 1: Failure(3, 2**41, "ü" * 200), 6 * 1024 - 1: Failure(1, 0)},
)


@pytest.mark.parametrize("settings", [SETTINGS, SubscriptionSettings(), None])
def test_subscription_is_read_as_written(settings: SubscriptionSettings | None) -> None:
    found = decode(*encode_subscription("t", "s", settings))
    assert found == StoredSubscription("t", "s", settings)


@pytest.mark.parametrize("head", [Head(2**60, 5, 7), Head(0), None])
def test_head_is_read_as_written(head: Head | None) -> None:
    assert decode(*encode_head("t", "s", 3, head)) == StoredHead("t", "s", 3, head)


@pytest.mark.parametrize("block", [BLOCK, Block(0, {5 * 1024: Failure(1, 1)}), None])
def test_block_is_read_as_written(block: Block | None) -> None:
    assert decode(*encode_block("t", "s", 3, 5, block)) == StoredBlock("t", "s", 3, 5, block)


def test_changes_are_a_record_each() -> None:
    entries = encode_changes("t", "s", 0, Changes(Head(4), {0: Block(1, {}), 9: None}))
    assert [decode(*entry) for entry in entries] == [
        StoredHead("t", "s", 0, Head(4)),
        StoredBlock("t", "s", 0, 0, Block(1, {})),
        StoredBlock("t", "s", 0, 9, None),
    ]
    assert encode_changes("t", "s", 0, Changes(None, {})) == []


def test_key_of_another_kind_is_unknown() -> None:
    assert decode(b"\x00\x63 whatever", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (encode_head("t", "s", 0, None)[0][:-1], None),
        (encode_head("t", "s", 0, None)[0], b"\x00\x01"),
        (encode_head("t", "s", 0, None)[0], b"\x00\x00\x00"),
    ],
)
def test_bytes_that_are_no_record_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode(key, value)
