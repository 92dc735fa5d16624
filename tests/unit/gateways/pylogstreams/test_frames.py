"""Frames are cut where they end, whatever is in them."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.gateways.pylogstreams.frames import (
    DeliveryHeads,
    Published,
    frame_bytes,
    framed,
    split_command,
    take_published,
)

LIMIT = 1 << 20
topics = st.text("abc", min_size=1, max_size=3)


def publish(topic: str, payload: bytes) -> bytes:
    content = b"PUB " + topic.encode() + b" " + payload
    return framed(content) + struct.pack(">I", zlib.crc32(payload))


@given(st.lists(st.tuples(topics, st.binary(max_size=50))), st.integers(0, 100))
def test_whole_frames_are_taken_in_order_and_the_rest_is_left(
    messages: list[tuple[str, bytes]], cut: int
) -> None:
    frames = [publish(*message) for message in messages]
    data = b"".join(frames)
    data = data[: max(len(data) - cut, 0)]
    expected: Published = {}
    end = 0
    for (topic, payload), frame in zip(messages, frames, strict=True):
        if end + len(frame) > len(data):
            break
        expected.setdefault(topic.encode(), []).append(payload)
        end += len(frame)
    published: Published = {}
    assert take_published(data, 0, published, max_bytes=LIMIT) == end
    assert published == expected


def test_another_command_ends_the_run() -> None:
    first = publish("a", b"1")
    published: Published = {}
    data = first + framed(b"PNG") + publish("a", b"2")
    assert take_published(data, 0, published, max_bytes=LIMIT) == len(first)
    assert published == {b"a": [b"1"]}


def test_what_follows_a_short_frame_is_not_part_of_it() -> None:
    for size in range(4):
        data = struct.pack(">I", size) + b"PUB t x" + bytes(8)
        assert take_published(data, 0, {}, max_bytes=LIMIT) == 0
        assert frame_bytes(memoryview(data), 0, len(data), max_bytes=LIMIT) == 4 + size


def test_a_wrong_checksum_is_found_and_what_came_before_is_taken() -> None:
    published: Published = {}
    data = publish("a", b"1") + publish("a", b"2")[:-1] + b"!" + publish("a", b"3")
    with pytest.raises(MalformedMessage, match="CRC-32"):
        take_published(data, 0, published, max_bytes=LIMIT)
    assert published == {b"a": [b"1"]}


@pytest.mark.parametrize("content", [b"PUB ", b"PUB x", b"PUB xyz"])
def test_a_message_without_a_payload_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedMessage):
        take_published(framed(content) + bytes(20), 0, {}, max_bytes=LIMIT)


def test_a_frame_over_the_limit_is_left_for_who_refuses_it() -> None:
    data = publish("a", b"x" * 100)
    assert take_published(data, 0, {}, max_bytes=50) == 0
    with pytest.raises(MalformedMessage, match="max"):
        frame_bytes(memoryview(data), 0, len(data), max_bytes=50)


@given(st.sampled_from([publish("abc", b"payload"), framed(b"REG"), framed(b"CID x"), bytes(4)]))
def test_the_size_of_a_frame_is_known_as_soon_as_it_can_be(frame: bytes) -> None:
    for there in range(len(frame) + 1):
        needed = frame_bytes(memoryview(frame), 0, there, max_bytes=LIMIT)
        assert there < needed <= len(frame) or there == needed == len(frame)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b"REG", ("REG", [])),
        (b"REG ", ("REG", [])),
        (b"SUB news", ("SUB", ["news"])),
        (b"SET news -1", ("SET", ["news", "-1"])),
        (b"SET  0", ("SET", ["", "0"])),
    ],
)
def test_a_command_is_split_into_words(frame: bytes, expected: tuple[str, list[str]]) -> None:
    assert split_command(frame) == expected


def test_a_command_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        split_command(b"SUB \xff")


def test_heads_of_deliveries_say_how_long_they_are() -> None:
    heads = DeliveryHeads("news")
    for size in [0, 5, 5, 100_000]:
        assert heads.of(size) == struct.pack(">I", 5 + size) + b"news "
