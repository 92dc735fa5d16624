"""Properties of record batches: round trips, and what damage can and cannot do.

Bytes come from clients and disks. Whatever they are, the readers end, stay within their limit and
raise only the errors of the tree.
"""

from __future__ import annotations

import contextlib
import struct

from hypothesis import assume, example, given
from hypothesis import strategies as st

from millstream.errors import InvalidBatch, InvalidRequest, MessageTooLarge, UnsupportedCodec
from millstream.records import (
    Codec,
    Record,
    assign_offset,
    body_of,
    build,
    compress,
    decompress,
    parse_control,
    parse_header,
    rebuild,
    records_of,
    stamp_append_time,
    validate,
    validate_produced,
)
from millstream.records.batch import CRC_AT, HEADER_BYTES, seal
from millstream.records.record_keys import key_runs, select
from millstream.records.varint import read_varint, read_varlong, write_varint, write_varlong

LIMIT_BYTES = 1 << 18
TYPED = (InvalidBatch, MessageTooLarge, UnsupportedCodec)

codecs = st.sampled_from(Codec)
packing_codecs = st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)

big_bytes = st.builds(
    lambda unit, times: unit * times, st.binary(max_size=9), st.integers(0, 3_000)
)
some_bytes = st.none() | st.binary(max_size=200) | big_bytes
# Any bytes make a header key; those that are not UTF-8 come as surrogate escapes.
header_keys = st.text(max_size=20) | st.binary(max_size=20).map(
    lambda data: data.decode("utf-8", "surrogateescape")
)
some_headers = st.lists(st.tuples(header_keys, some_bytes), max_size=4).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, *, max_size: int = 40) -> list[Record]:
    """Records with growing offsets, some with gaps, from 0."""
    offsets = draw(st.sets(st.integers(0, 2 * max_size), min_size=1, max_size=max_size))
    base_ms = draw(st.integers(-(2**62), 2**62))
    return [
        Record(
            offset,
            base_ms + draw(st.integers(-(2**40), 2**40)),
            draw(some_bytes),
            draw(some_bytes),
            draw(some_headers),
        )
        for offset in sorted(offsets)
    ]


@given(value=int64s)
def test_long_number_reads_back_the_same(value: int) -> None:
    out = bytearray(b"--")
    write_varlong(out, value)
    assert read_varlong(bytes(out), 2) == (value, len(out))


@given(value=int32s)
def test_number_reads_back_the_same(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert len(out) <= 5
    assert read_varint(bytes(out), 0) == (value, len(out))


@given(
    records=record_lists(),
    codec=codecs,
    base_offset=st.integers(0, 2**62),
    after=st.integers(0, 10),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    leader_epoch=int32s,
)
def test_built_batch_reads_back_the_same(
    records: list[Record],
    codec: Codec,
    base_offset: int,
    after: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    leader_epoch: int,
) -> None:
    moved = [record._replace(offset=record.offset + base_offset) for record in records]
    batch = build(
        moved,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        leader_epoch=leader_epoch,
        last_offset_delta=records[-1].offset + after,
    )
    header = validate(batch)
    assert header == parse_header(batch)
    assert header.size_bytes == len(batch)
    assert header.last_offset == moved[-1].offset + after
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert (header.codec, header.is_transactional) == (codec, transactional)
    assert header[9:12] == (producer_id, producer_epoch, base_sequence)
    assert (header.leader_epoch, header.records_count) == (leader_epoch, len(records))
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES * 64)) == moved


@given(records=record_lists(), codec=codecs, base_offset=st.integers(0, 2**62), now=int64s)
def test_patched_batch_stays_valid(
    records: list[Record], codec: Codec, base_offset: int, now: int
) -> None:
    batch = build(records, codec=codec)
    before = validate(batch)
    assign_offset(batch, base_offset, 3)
    assert validate(batch) == before._replace(base_offset=base_offset, leader_epoch=3)
    stamp_append_time(batch, now)
    assert validate(batch).timestamp_type_append
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES * 64)) == [
        record._replace(offset=record.offset + base_offset, timestamp_ms=now) for record in records
    ]


@given(records=record_lists(), codec=codecs, data=st.data())
def test_rebuilt_batch_holds_exactly_the_records_kept(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build(records, codec=codec)
    header = validate(batch)
    body = body_of(batch, limit_bytes=LIMIT_BYTES * 64)
    keep = data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1))
    rebuilt = rebuild(
        header,
        select(header, body, bytes(n in keep for n in range(len(records))))[0],
        records_count=len(keep),
        max_timestamp_ms=max(records[n].timestamp_ms for n in keep),
        codec=codec,
    )
    assert validate(rebuilt).last_offset == header.last_offset
    assert list(records_of(rebuilt, limit_bytes=LIMIT_BYTES * 64)) == [
        record for n, record in enumerate(records) if n in keep
    ]


@given(records=record_lists(max_size=5), codec=codecs, data=st.data())
def test_changed_bytes_under_the_checksum_never_validate(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build(records, codec=codec)
    position = data.draw(st.integers(CRC_AT, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    try:
        validate(batch)
    except InvalidBatch:
        return
    raise AssertionError(f"byte {position} is not under the checksum")


@given(data=st.binary(max_size=400))
@example(data=bytes(61))
def test_any_bytes_raise_only_typed_errors(data: bytes) -> None:
    for read in (parse_header, validate, validate_produced, parse_control):
        with contextlib.suppress(InvalidRequest):
            read(data)
    read_records(data)


@given(
    header=st.tuples(
        *(int64s, int32s, int32s, st.just(2), st.just(0)),
        *(st.integers(-(2**15), 2**15 - 1), int32s, int64s, int64s, int64s),
        *(st.integers(-(2**15), 2**15 - 1), int32s, int32s),
    ),
    body=st.binary(max_size=300),
)
def test_any_header_and_body_raise_only_typed_errors(header: tuple[int, ...], body: bytes) -> None:
    batch = bytearray(struct.pack(">qiibIhiqqqhii", *header)) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    seal(batch)
    for read in (validate, validate_produced, parse_control):
        with contextlib.suppress(InvalidRequest):
            read(batch)
    read_records(batch)


@given(records=record_lists(max_size=6), codec=codecs, data=st.data())
def test_damage_behind_a_right_checksum_raises_only_typed_errors(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
        batch[position] = data.draw(st.integers(0, 255))
    seal(batch)
    validate(batch)
    read_records(batch)


@given(records=record_lists(max_size=6), data=st.data())
def test_damaged_body_raises_only_typed_errors_and_both_readers_agree(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build(records)
    position = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    if data.draw(st.booleans()):
        batch[position] = data.draw(st.integers(0, 255))
    else:
        del batch[position : position + data.draw(st.integers(1, 20))]
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    whole = read_records(batch)
    keys = read_keys(batch)
    # The reader of keys looks at less, so it may pass where the other does not; never the reverse.
    if whole is not None:
        assert keys == [(record.offset, record.key, record.value is None) for record in whole]


@given(codec=packing_codecs, content=big_bytes | st.binary(max_size=2_000), data=st.data())
def test_damaged_packing_never_passes_its_limit(
    codec: Codec, content: bytes, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, content))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed))) :]
    limit_bytes = data.draw(st.integers(0, 2 * len(content)))
    unpacked = unpack(codec, packed, limit_bytes)
    assert unpacked is None or len(unpacked) <= limit_bytes


@given(codec=packing_codecs, data=st.binary(max_size=300), limit_bytes=st.integers(0, 1_000))
def test_any_bytes_unpack_within_the_limit_or_raise_a_typed_error(
    codec: Codec, data: bytes, limit_bytes: int
) -> None:
    for start in (
        b"",
        b"\x1f\x8b\x08\x00",
        b"\x82SNAPPY\x00",
        b"\x04\x22\x4d\x18",
        b"\x28\xb5\x2f\xfd",
    ):
        unpacked = unpack(codec, start + data, limit_bytes)
        assert unpacked is None or len(unpacked) <= limit_bytes


@given(codec=packing_codecs, content=st.binary(max_size=500), data=st.data())
def test_packing_cut_short_is_refused(codec: Codec, content: bytes, data: st.DataObject) -> None:
    packed = compress(codec, content)
    size_bytes = data.draw(st.integers(0, len(packed) - 1))
    # A stream of snappy-java may end after any of its blocks, and after its header.
    assume(codec is not Codec.SNAPPY or size_bytes != 16)
    assert unpack(codec, packed[:size_bytes], LIMIT_BYTES) is None


def read_records(batch: bytes | bytearray) -> list[Record] | None:
    """What the batch holds, or None when a typed error says that it cannot be read."""
    try:
        return list(records_of(batch, limit_bytes=LIMIT_BYTES))
    except TYPED:
        return None


def read_keys(batch: bytearray) -> list[tuple[int, bytes | None, bool]] | None:
    """Offset, key and whether it is a tombstone, of each record; None for a typed error."""
    try:
        runs = list(key_runs(parse_header(batch), body_of(batch, limit_bytes=LIMIT_BYTES)))
    except TYPED:
        return None
    return [
        (delta, key, number in run.tombstones)
        for run in runs
        for number, (delta, key) in enumerate(zip(run.offset_deltas, run.keys, strict=True))
    ]


def unpack(codec: Codec, data: bytes | bytearray, limit_bytes: int) -> bytes | None:
    try:
        return decompress(codec, data, limit_bytes)
    except TYPED:
        return None
