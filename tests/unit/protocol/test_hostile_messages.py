"""Every declared message against bytes that are cut, changed or random."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.protocol.apis import APIS, request_class, response_class
from millstream.protocol.codec import decode, encode
from millstream.protocol.headers import read_client_id
from millstream.protocol.notation import Struct
from tests.fakes.examples import examples
from tests.fakes.request_header import parse_request_header
from tests.unit.protocol.kio_values import as_struct, entity_class, plain_messages

WRITTEN_BY_HAND = {0, 1}
API_KEYS = sorted(APIS.keys() - WRITTEN_BY_HAND)

few = settings(max_examples=examples(5), suppress_health_check=list(HealthCheck))


def _versions(struct: type[Struct]) -> range:
    assert struct.VERSIONS is not None
    first, last = struct.VERSIONS
    return range(first, last + 1)


@st.composite
def _requests(draw: st.DrawFn, api_key: int) -> tuple[type[Struct], int, bytes]:
    struct = request_class(api_key)
    version = draw(st.sampled_from(_versions(struct)))
    entity = entity_class(api_key, version, "Request")
    value = as_struct(struct, entity, draw(plain_messages(entity)))
    return struct, version, encode(value, version)


@pytest.mark.parametrize("api_key", API_KEYS)
def test_request_that_is_cut_is_malformed(api_key: int) -> None:
    @few
    @given(_requests(api_key))
    def check(request: tuple[type[Struct], int, bytes]) -> None:
        struct, version, written = request
        for size in range(len(written)):
            with pytest.raises(MalformedMessage):
                decode(struct, version, written[:size])

    check()


@pytest.mark.parametrize("api_key", API_KEYS)
def test_request_that_is_changed_is_malformed_or_another_request(api_key: int) -> None:
    @few
    @given(_requests(api_key), st.data())
    def check(request: tuple[type[Struct], int, bytes], data: st.DataObject) -> None:
        struct, version, written = request
        changed = bytearray(written)
        for _ in range(data.draw(st.integers(1, 3))):
            if changed:
                place = data.draw(st.integers(0, len(changed) - 1))
                changed[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
        with suppress(MalformedMessage):
            value = decode(struct, version, memoryview(changed))
            assert decode(struct, version, encode(value, version)) == value

    check()


@pytest.mark.parametrize("api_key", API_KEYS)
def test_random_bytes_are_malformed_or_a_message(api_key: int) -> None:
    @few
    @given(st.data())
    def check(data: st.DataObject) -> None:
        struct = data.draw(st.sampled_from([request_class(api_key), response_class(api_key)]))
        version = data.draw(st.sampled_from(_versions(struct)))
        with suppress(MalformedMessage):
            decode(struct, version, data.draw(st.binary(max_size=200)))

    check()


@pytest.mark.parametrize("api_key", API_KEYS)
def test_lying_sizes_cost_no_memory(api_key: int) -> None:
    struct = request_class(api_key)
    lies: list[bytes] = [
        b"\x7f\xff" * 64,
        b"\xff\xff\xff\xff\x0f" * 25,
        b"\xff\xff\xff\xff\x07" * 25,
    ]
    for version in _versions(struct):
        for lie in lies:
            with suppress(MalformedMessage):
                decode(struct, version, lie)
    tracemalloc.start()
    try:
        for version in _versions(struct):
            for lie in lies:
                with suppress(MalformedMessage):
                    decode(struct, version, lie)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


@given(st.binary(max_size=40))
def test_random_header_is_malformed_or_a_header(data: bytes) -> None:
    for frame in (data, memoryview(data)):
        with suppress(MalformedMessage):
            _, position = parse_request_header(frame)
            assert position <= len(data)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\0\x12\0\0\0\0\0", "a request of 7 bytes has no header"),
        (b"\0\x12\0\0\0\0\0\1\0", "request header"),
        (b"\0\x12\0\0\0\0\0\1\xff\xfe", "client_id has size -2 with 0 bytes left"),
        (b"\0\x12\0\0\0\0\0\1\0\2a", "client_id has size 2 with 1 bytes left"),
        (b"\0\x12\0\0\0\0\0\1\0\1\xff", "utf-8"),
        (b"\0\x12\0\3\0\0\0\1\0\1a", "request header"),
        (b"\0\x12\0\3\0\0\0\1\0\1a\1\0\5abc", "a tagged field has size 5 with 3 bytes left"),
        (b"\0\x12\0\3\0\0\0\1\0\1a\xff\xff\xff\xff\xff", "more than 32 bits"),
    ],
)
def test_header_that_lies_is_malformed(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        parse_request_header(frame)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    frame = b"\0\x12\0\3\0\0\0\1\0\1a\2\0\3abc\x80\1\0body"
    header, position = parse_request_header(frame)
    assert header.client_id == "a"
    assert frame[position:] == b"body"
    assert read_client_id(frame, flexible=True) == ("a", position)


def test_api_that_nobody_knows_has_an_old_header() -> None:
    header, position = parse_request_header(b"\x7f\xff\0\x63\0\0\0\1\xff\xff")
    assert header == (0x7FFF, 0x63, 1, None)
    assert position == 10
