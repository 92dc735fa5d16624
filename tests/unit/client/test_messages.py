"""Messages before they leave: checked, and brought into one form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millstream.client.messages import NewMessage, Outgoing, Received, Sent, outgoing


def test_text_becomes_utf8_and_bytes_stay() -> None:
    message = outgoing(NewMessage("ü", key=b"\xff", headers={"a": "ü", "b": None}))
    assert message == Outgoing(
        "ü".encode(), b"\xff", (("a", "ü".encode()), ("b", None)), None, None
    )


def test_times_become_milliseconds() -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    message = outgoing(NewMessage("v", timestamp=then, deliver_after=timedelta(minutes=1)))
    assert message.timestamp_ms == 1_767_225_600_000
    assert message.deliver_after_ms == 60_000
    message = outgoing(NewMessage("v", timestamp=5, deliver_at=then))
    assert (message.timestamp_ms, message.deliver_at_ms) == (5, 1_767_225_600_000)
    assert outgoing(NewMessage("v", deliver_after=0.25)).deliver_after_ms == 250


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"value": {"a": 1}}, TypeError, "json.dumps"),
        ({"value": 5}, TypeError, "value is a int"),
        ({"value": "v", "key": 5}, TypeError, "key is a int"),
        ({"value": "v", "headers": {"a": 5}}, TypeError, "header 'a'"),
        ({"value": "v", "headers": [(5, "a")]}, TypeError, "name of a header"),
        ({"value": "v", "headers": {"\udc80": "a"}}, ValueError, "surrogates"),
        ({"value": "\udc80"}, ValueError, "surrogates"),
        ({"value": "v", "partition": -1}, ValueError, "count from 0"),
        ({"value": "v", "timestamp": datetime(2026, 1, 1)}, ValueError, "time zone"),  # noqa: DTZ001
        ({"value": "v", "timestamp": 1.5}, TypeError, "no time"),
        ({"value": "v", "timestamp": -1}, ValueError, "no time"),
        ({"value": "v", "timestamp": 1 << 63}, ValueError, "no time"),
        ({"value": "v", "deliver_after": -1}, ValueError, "in the past"),
        ({"value": "v", "deliver_after": 1, "deliver_at": 1}, ValueError, "exclude"),
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused(
    fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        outgoing(NewMessage(**fields))


def test_received_message_tells_what_it_is() -> None:
    message = Received(
        "t",
        1,
        7,
        timestamp_ms=1500,
        key=None,
        value="ü".encode(),
        headers=(("a", b"1"), ("a", b"2")),
    )
    assert message.id == Sent("t", 1, 7, 1500).id == "1:7"
    assert message.text == "ü"
    assert message.timestamp == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert message.header("a") == b"2"
    assert repr(message).startswith("<Received t 1:7")
