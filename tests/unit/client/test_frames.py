"""Frames of the WebSocket protocol, as the client makes and reads them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.frames import decode, delivered, encode, message_fields, start_of
from millstream.client.messages import Outgoing
from millstream.errors import MalformedMessage
from millstream.gateways.http.message_shapes import message_shape, new_record
from millstream.records import Record

DATA = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), DATA), max_size=4).map(
    # Headers of one name are told together.
    lambda pairs: tuple(sorted(pairs, key=lambda pair: [p[0] for p in pairs].index(pair[0])))
)


@given(value=DATA, key=DATA, headers=HEADERS)
def test_broker_stores_what_was_sent_and_client_reads_what_was_stored(
    value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    sent = json.loads(encode(message_fields(Outgoing(value, key, headers, 3, 5))))
    record = new_record(sent, delayed=lambda _: ())
    assert (record.value, record.key, record.headers) == (value, key, headers)
    assert (record.partition, record.timestamp_ms) == (3, 5)
    shape = message_shape(Record(7, 5, record.key, record.value, record.headers), 3)
    read = delivered(decode(encode(shape)))
    assert (read.value, read.key, read.headers) == (value, key, headers)
    assert (read.partition, read.offset, read.timestamp_ms) == (3, 7, 5)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"5", b"\xff"])
def test_what_is_no_frame_is_told(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


def test_start_is_written_as_the_protocol_has_it() -> None:
    assert start_of("latest") == "latest"
    assert start_of(5) == 5
    assert start_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)) == {"timestamp": 2000}
    assert start_of({1: 7}) == {"positions": {"1": 7}}


@pytest.mark.parametrize("wrong", [True, 1.5, None])
def test_start_of_a_wrong_type_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match="earliest"):
        start_of(wrong)  # type: ignore[arg-type]
