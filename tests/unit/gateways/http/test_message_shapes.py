"""Messages as JSON: what goes in comes out, and ids lead back to places."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.sending import NewRecord
from millstream.errors import InvalidRequest, MalformedMessage
from millstream.gateways.http.json_text import parse_small
from millstream.gateways.http.message_ids import (
    MAX_MESSAGE_ID,
    Place,
    message_id_of,
    place_of,
    place_of_text,
)
from millstream.gateways.http.message_shapes import (
    message_shape,
    new_record,
    new_records,
)
from millstream.records import Record
from millstream.records.record import Headers
from millstream.settings.topics import MAX_PARTITIONS
from millstream.subscriptions.delivery_time import DELIVER_AT

HEADERS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=5)),
    max_size=4,
).map(tuple)


def delayed(delay_ms: int) -> Headers:
    return (("delay", b"%d" % delay_ms),)


def grouped(headers: Any) -> dict[str, list[bytes | None]]:
    found: dict[str, list[bytes | None]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    return found


@given(
    value=st.none() | st.binary(max_size=20),
    key=st.none() | st.binary(max_size=20),
    headers=HEADERS,
    is_base64=st.booleans(),
)
def test_message_that_was_read_can_be_sent_again(
    value: bytes | None, key: bytes | None, headers: Any, is_base64: bool
) -> None:
    record = Record(7, 5, key, value, headers)
    encoding = "base64" if is_base64 else "text"
    shape = orjson.loads(orjson.dumps(message_shape(record, 2, encoding=encoding)))
    if is_base64:
        again = {name: shape[name] for name in ("value", "key", "headers")}
        sent = new_record(again, delayed=delayed, encoding="base64")
        assert (sent.value, sent.key) == (value, key)
    else:
        sent = new_record({"value": None, "headers": shape["headers"]}, delayed=delayed)
        for name, data in (("value", value), ("key", key)):
            is_packed = "encoding" in shape if name == "value" else "key_encoding" in shape
            text = shape[name]
            if data is None:
                assert text is None
            elif is_packed:
                assert text == b64encode(data).decode()
            else:
                assert text.encode() == data
    assert grouped(sent.headers) == grouped(headers)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_anything_is_a_message_or_refused(shape: Any) -> None:
    with pytest.raises(InvalidRequest):
        new_record(shape, delayed=delayed)


@given(
    st.dictionaries(
        st.sampled_from(
            ["value", "data", "message", "key", "headers", "partition", "timestamp", "encoding"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.dictionaries(st.text(), st.text()),
    )
)
def test_any_object_becomes_a_record_or_is_refused(shape: dict[str, Any]) -> None:
    try:
        record = new_record(shape, delayed=delayed)
    except InvalidRequest:
        return
    assert isinstance(record, NewRecord)
    assert record.value is None or isinstance(record.value, bytes)
    assert record.key is None or isinstance(record.key, bytes)
    assert record.partition is None or 0 <= record.partition <= MAX_PARTITIONS


def test_date_or_delay_becomes_headers() -> None:
    own = {"value": "x", "headers": {"h": "1"}}
    record = new_record({**own, "deliver_after": 5}, delayed=delayed)
    assert record.headers == (("h", b"1"), ("delay", b"5"))
    record = new_record({**own, "deliver_at": 7}, delayed=delayed)
    assert record.headers == (("h", b"1"), (DELIVER_AT, b"7"))
    with pytest.raises(InvalidRequest, match="exclude each other"):
        new_record({**own, "deliver_at": 7, "deliver_after": 5}, delayed=delayed)


def test_bad_one_of_many_is_named() -> None:
    with pytest.raises(InvalidRequest, match="message 1: "):
        new_records([{"value": "x"}, 7], delayed=delayed)


def test_header_name_that_is_no_text_can_be_told() -> None:
    shape = message_shape(Record(0, 0, None, None, (("\udcff", b"1"),)), 0)
    assert orjson.loads(orjson.dumps(shape))["headers"] == {"�": "1"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\ud800"', b"NaN"])
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        parse_small(body)


@given(st.integers(0, MAX_PARTITIONS), st.integers(0, 2**46 - 1))
def test_id_leads_back_to_its_place(partition: int, offset: int) -> None:
    message_id = message_id_of(partition, offset)
    assert 0 <= message_id <= MAX_MESSAGE_ID
    assert place_of(message_id) == Place(partition, offset)
    assert place_of_text(str(message_id)) == Place(partition, offset)
    assert place_of_text(f"{partition}:{offset}") == Place(partition, offset)


def test_id_in_the_first_partition_is_the_offset() -> None:
    assert [message_id_of(0, offset) for offset in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "x", "1:", ":1", "1:2:3", "-1", "\u0661", "9" * 30, "1" * 5000]
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        place_of_text(text)
