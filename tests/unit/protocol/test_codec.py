"""The codec on declarations made for it: versions, null, tags, and what bytes lie about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.protocol.codec import decode, decode_prefix, encode, encode_parts
from millstream.protocol.notation import (
    NO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Struct,
    Uint16,
    Uint32,
    Uuid,
    field,
)


class Leaf(Struct):
    number: Int32 = field()
    text: String = field(since=1)


class Old(Struct, versions=(0, 2)):
    """Never flexible."""

    flag: Bool = field()
    text: String = field()
    maybe: String | None = field(nullable=1)
    numbers: Sequence[Int32] = field()
    leaves: Sequence[Leaf] | None = field(nullable=1)
    data: Bytes = field(since=2)


class New(Struct, versions=(0, 1), flexible=0):
    """Flexible from the start."""

    text: String = field()
    maybe: String | None = field(nullable=0)
    numbers: Sequence[Int16] = field()
    leaves: Sequence[Leaf] = field()
    one: Leaf | None = field(nullable=0)
    tagged_number: Int64 = field(tag=1, default=-1)
    tagged_leaves: Sequence[Leaf] = field(tag=3)
    tagged_text: String | None = field(tag=5, nullable=0)
    tagged_leaf: Leaf = field(tag=6)


class Everything(Struct, versions=(0, 1), flexible=1):
    flag: Bool = field()
    int8: Int8 = field()
    int16: Int16 = field()
    uint16: Uint16 = field()
    int32: Int32 = field()
    uint32: Uint32 = field()
    int64: Int64 = field()
    float64: Float64 = field()
    uuid: Uuid = field()
    text: String = field()
    data: Bytes = field()
    records: Records = field()
    uuids: Sequence[Uuid] = field()
    flags: Sequence[Bool] = field()
    texts: Sequence[String] = field()


class Data(Struct, versions=(0, 1), flexible=1):
    records: Records | None = field(nullable=0)


class Gone(Struct, versions=(0, 2)):
    always: Int8 = field()
    early: Int8 = field(until=1)
    late: Int8 = field(since=2, default=7)


class Hollow(Struct):
    late: Int8 = field(since=1)


class Hollows(Struct, versions=(0, 1)):
    """Its elements take no room in version 0."""

    items: Sequence[Hollow] = field()


Message = TypeVar("Message", bound=Struct)


def _tagged(value: Message, tags: dict[int, bytes]) -> Message:
    value.unknown_tags = tags
    return value


# What a value is made of, and how values compare.


def test_unset_fields_have_defaults() -> None:
    value = Everything()
    assert value.flag is False
    assert (value.int8, value.uint32, value.int64, value.float64) == (0, 0, 0, 0.0)
    assert (value.text, value.data, value.uuid) == ("", b"", NO_UUID)
    assert value.texts == ()
    assert New().maybe is None
    assert New().one is None
    assert New().tagged_number == -1
    assert New().tagged_leaf == Leaf()
    assert Gone().late == 7


def test_values_are_compared_field_by_field() -> None:
    assert Leaf(number=1) == Leaf(number=1, text="")
    assert Leaf(number=1) != Leaf(number=2)
    assert Leaf() != Hollow()
    assert New(leaves=[Leaf()]) == New(leaves=(Leaf(),))
    assert New(leaves=[Leaf()]) != New(leaves=[])
    assert _tagged(New(), {9: b""}) != New()
    with pytest.raises(TypeError):
        hash(Leaf())


def test_field_that_is_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="Leaf has no field 'size'"):
        Leaf(size=1)  # type: ignore[call-arg]


def test_value_shows_what_was_set() -> None:
    assert repr(New(text="a", one=Leaf(number=2))) == "New(text='a', one=Leaf(number=2))"


# Versions.


def test_bytes_of_an_old_version_are_as_the_protocol_says() -> None:
    value = Old(flag=True, text="ab", numbers=[1, 2], leaves=[Leaf(number=3)])
    expected = (
        b"\x01" b"\x00\x02ab" b"\x00\x00"
        b"\x00\x00\x00\x02" b"\x00\x00\x00\x01" b"\x00\x00\x00\x02"
        b"\x00\x00\x00\x01" b"\x00\x00\x00\x03"
    )  # fmt: skip
    assert encode(value, 0) == expected
    assert decode(Old, 0, expected) == Old(
        flag=True, text="ab", maybe="", numbers=[1, 2], leaves=[Leaf(number=3)]
    )


def test_bytes_of_a_flexible_version_are_as_the_protocol_says() -> None:
    value = New(text="ab", numbers=[1], leaves=[Leaf(number=3)], tagged_number=5)
    expected = (
        b"\x03ab" b"\x00" b"\x02\x00\x01"
        b"\x02" b"\x00\x00\x00\x03" b"\x00"
        b"\xff"
        b"\x01" b"\x01\x08" b"\x00\x00\x00\x00\x00\x00\x00\x05"
    )  # fmt: skip
    assert encode(value, 0) == expected
    assert decode(New, 0, expected) == value


@pytest.mark.parametrize("version", [0, 1])
def test_every_type_comes_back_as_it_was(version: int) -> None:
    value = Everything(
        flag=True,
        int8=-128,
        int16=-32768,
        uint16=65535,
        int32=-(2**31),
        uint32=2**32 - 1,
        int64=-(2**63),
        float64=0.1,
        uuid=bytes(range(16)),
        text="grüße",
        data=b"\0\xff",
        records=b"records",
        uuids=[bytes(range(16)), NO_UUID],
        flags=[True, False],
        texts=["", "x"],
    )
    assert decode(Everything, version, encode(value, version)) == value


def test_value_that_a_version_does_not_know_is_left_out() -> None:
    value = Gone(always=1, early=2, late=3)
    assert encode(value, 1) == b"\x01\x02"
    assert encode(value, 2) == b"\x01\x03"
    assert decode(Gone, 1, b"\x01\x02") == Gone(always=1, early=2)


def test_null_is_written_as_empty_in_versions_without_null() -> None:
    value = Old(maybe=None, leaves=None)
    assert decode(Old, 0, encode(value, 0)) == Old(maybe="", leaves=())
    assert decode(Old, 1, encode(value, 1)) == value


@pytest.mark.parametrize("version", [-1, 3])
def test_version_that_is_not_declared_is_malformed(version: int) -> None:
    with pytest.raises(MalformedMessage, match=f"Old has no version {version}"):
        decode(Old, version, b"")
    with pytest.raises(MalformedMessage):
        encode(Old(), version)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16382, 16383, 16384, 70000])
def test_sizes_around_the_limits_of_varints_come_back(size: int) -> None:
    value = New(text="x" * size, numbers=range(-3, 4), leaves=[Leaf(number=7)] * (size % 1000))
    value.numbers = [5] * size
    assert decode(New, 1, encode(value, 1)) == value


# Parts, views and prefixes.


@pytest.mark.parametrize("version", [0, 1])
def test_records_are_views_of_the_buffer(version: int) -> None:
    buffer = bytearray(encode(Data(records=b"abc"), version))
    records = decode(Data, version, memoryview(buffer)).records
    assert isinstance(records, memoryview)
    assert records.obj is buffer
    assert bytes(records) == b"abc"
    assert any(part is records for part in encode_parts(Data(records=records), version))
    assert decode(Data, version, encode(Data(), version)).records is None


def test_message_inside_other_bytes_is_read_from_its_position() -> None:
    written = encode(Gone(always=1, late=2), 2)
    value, stop = decode_prefix(Gone, 2, b"before" + written + b"after", 6)
    assert value == Gone(always=1, late=2)
    assert stop == 8
    assert decode(Gone, 2, b"before" + written, 6) == value


# Tagged fields.


def test_unknown_tags_are_kept_and_written_again_in_order() -> None:
    value = New(
        leaves=[_tagged(Leaf(), {0: b"", 200: b"x" * 300})],
        one=_tagged(Leaf(), {2**31: b"far"}),
        tagged_leaves=[_tagged(Leaf(), {4: b"in a tag"})],
        tagged_text="t",
    )
    _tagged(value, {4: b"between", 0: b"first", 1000: b"last"})
    written = encode(value, 1)
    read = decode(New, 1, written)
    assert read == value
    assert list(read.unknown_tags) == [0, 4, 1000]
    assert encode(read, 1) == written


def test_tagged_field_with_its_default_is_not_sent() -> None:
    assert encode(New(), 0)[-1:] == b"\0"
    assert encode(New(tagged_leaf=Leaf(number=0), tagged_leaves=[]), 0) == encode(New(), 0)


def _with_tags(tags: bytes) -> bytes:
    return encode(New(), 0)[:-1] + tags


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\x02\x01\x08" + bytes(8) + b"\x01\x08" + bytes(8), "tag 1 comes after tag 1"),
        (b"\x02\x09\x00\x08\x00", "tag 8 comes after tag 9"),
        (b"\x01\x09\x01", "tag 9 has size 1 with 0 bytes left"),
        (b"\x01\x01\x09" + bytes(9), "tagged_number is not as long as its tag says"),
        (b"\x01\x01\x07" + bytes(8), "tagged_number is not as long as its tag says"),
        (b"\x01\x03\x02\x05\x00" + bytes(50), "tagged_leaves has size 4 with 1 bytes left"),
        (b"\x01\x01", "index"),
        (b"\xff\xff\xff\xff\x0f", "index"),
        (b"\x00\x00", "1 bytes after the end of New"),
        (b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
        (b"\x80\x80\x80\x80\x80\x00", "more than 32 bits"),
    ],
)
def test_tags_that_lie_are_malformed(tags: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode(New, 0, _with_tags(tags))


# Everything else that can be wrong.


@pytest.mark.parametrize(
    ("struct", "version", "data", "reason"),
    [
        (Old, 0, b"", "Old version 0"),
        (Old, 0, b"\x00\xff\xff", "Old.text has size -1"),
        (Old, 0, b"\x00\x80\x00", "Old.text has size -32768"),
        (Old, 0, b"\x00\x00\x02a", "Old.text has size 2 with 1 bytes left"),
        (Old, 0, b"\x00\x00\x01\xff", "utf-8"),
        (Old, 1, b"\x00\x00\x00\xff\xfe", "Old.maybe has size -2"),
        (Old, 0, b"\x00" + bytes(4) + b"\xff\xff\xff\xff", "Old.numbers has size -1"),
        (Old, 0, b"\x00" + bytes(4) + b"\x7f\xff\xff\xff", "Old.numbers has size 2147483647"),
        (Old, 0, b"\x00" + bytes(4) + b"\0\0\0\2" + bytes(7), "Old.numbers has size 2 with 7"),
        (Old, 0, b"\x00" + bytes(8) + b"\0\0\0\2" + bytes(7), "Old.leaves has size 2 with 7"),
        (Old, 1, b"\x00" + bytes(8) + b"\xff\xff\xff\xfe", "Old.leaves has size -2"),
        (Old, 0, b"\x00" + bytes(12) + b"x", "1 bytes after the end of Old"),
        (New, 0, b"\x00", "New.text has size -1"),
        (New, 0, b"\x03a", "New.text has size 2 with 1"),
        (New, 0, b"\xff\xff\xff\xff\x0f", "New.text has size 4294967294"),
        (New, 0, b"\xff\xff\xff\xff\x7f", "more than 32 bits"),
        (New, 0, b"\x80\x80\x80\x80\x80\x80", "more than 32 bits"),
        (New, 0, b"\x01\x00\x00", "New.numbers has size -1"),
        (New, 0, b"\x01\x00\x01\x01\x00", "New.one has presence 0"),
        (New, 0, b"\x01\x00\x01\x01\x02", "New.one has presence 2"),
        (Hollows, 0, b"\x00\x00\x00\x01", "Hollows.items has size 1 with 0 bytes left"),
    ],
)
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_bytes_that_lie_are_malformed(
    struct: type[Struct],
    version: int,
    data: bytes,
    reason: str,
    kind: type[bytes] | type[memoryview],
) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode(struct, version, kind(data))


def test_position_behind_the_end_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode(New, 0, b"abc", 10)


tags = st.dictionaries(st.integers(7, 2**32 - 1), st.binary())
leaves = st.builds(
    _tagged, st.builds(Leaf, number=st.integers(-(2**31), 2**31 - 1), text=st.text()), tags
)
messages = st.builds(
    New,
    text=st.text(),
    maybe=st.none() | st.text(),
    numbers=st.lists(st.integers(-(2**15), 2**15 - 1)),
    leaves=st.lists(leaves),
    one=st.none() | leaves,
    tagged_number=st.just(-1) | st.integers(-(2**63), 2**63 - 1),
    tagged_leaves=st.lists(leaves),
    tagged_text=st.none() | st.text(),
    tagged_leaf=leaves,
)


@given(st.builds(_tagged, messages, tags))
def test_message_comes_back_as_it_was(value: New) -> None:
    written = encode(value, 1)
    assert decode(New, 1, written) == value
    assert decode(New, 1, memoryview(written)) == value
    assert encode(decode(New, 1, written), 1) == written
