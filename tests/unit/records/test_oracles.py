"""Agreement, in both directions, with independent implementations of the format.

aiokafka and kafka-python each bring a reader and a builder, and each its own codecs.
"""

from __future__ import annotations

import importlib
import struct
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.records import (
    Codec,
    ControlType,
    Record,
    assign_offset,
    build,
    build_control,
    records_of,
    stamp_append_time,
    validate,
    validate_produced,
)
from millstream.records.batch import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_AT, seal

LIMIT_BYTES = 1 << 20
PACKAGES = ["aiokafka", "kafka"]


def oracle_modules(name: str) -> dict[str, Any]:
    """A module of either package. kafka-python uses what some versions of Python deprecate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return {package: importlib.import_module(f"{package}.{name}") for package in PACKAGES}


FORMATS = oracle_modules("record.default_records")
FILES = oracle_modules("record.memory_records")
CODECS = oracle_modules("codec")

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 1_000),
    Record(1, 1_700_000_000_500, None, b"no key"),
    Record(2, 1_700_000_000_250, b"no value", None),
    Record(3, 1_699_999_999_999, b"", b""),
    Record(4, 1_700_000_086_400, b"k" * 200, b"v" * 40_000, (("a", b"1"), ("a", None), ("ü", b""))),
    *(Record(n, 1_700_000_000_000 + n, b"%d" % n, b"text " * (n % 9)) for n in range(5, 300)),
]


def read_by_oracle(package: str, batch: bytes | bytearray) -> list[Record]:
    oracle = FORMATS[package].DefaultRecordBatch(bytes(batch))
    assert oracle.validate_crc()
    return [as_record(record) for record in oracle]


def as_record(record: Any) -> Record:
    headers = tuple((key, value) for key, value in record.headers)
    return Record(record.offset, record.timestamp, record.key, record.value, headers)


def built_by_oracle(
    package: str, records: Iterable[Record], codec: Codec, *, producer: tuple[int, int, int] | None
) -> bytearray:
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    builder = FORMATS[package].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(producer is not None),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    for offset, timestamp_ms, key, value, headers in records:
        assert builder.append(offset, timestamp_ms, key, value, list(headers))
    return bytearray(builder.build())


def in_raw_snappy(package: str, records: list[Record]) -> bytearray:
    """A batch as librdkafka makes it: snappy with no framing, packed by the oracle."""
    batch = build(records)
    packed = CODECS[package].snappy_encode(bytes(batch[HEADER_BYTES:]), xerial_compatible=False)
    batch[HEADER_BYTES:] = bytes(packed)
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, Codec.SNAPPY)
    seal(batch)
    return batch


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("codec", list(Codec))
def test_our_batch_is_read_by_the_oracle(package: str, codec: Codec) -> None:
    batch = build(RECORDS, codec=codec)
    assert read_by_oracle(package, batch) == RECORDS


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("codec", list(Codec))
def test_batch_of_the_oracle_is_read_by_us(package: str, codec: Codec) -> None:
    batch = built_by_oracle(package, RECORDS, codec, producer=None)
    header = validate_produced(batch)
    assert header.codec is codec
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == RECORDS


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("producer", [None, (2**40, 3, 2**31 - 5)])
def test_unpacked_batches_are_equal_byte_for_byte(
    package: str, producer: tuple[int, int, int] | None
) -> None:
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    ours = build(
        RECORDS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=producer is not None,
        leader_epoch=-1,
    )
    theirs = built_by_oracle(package, RECORDS, Codec.NONE, producer=producer)
    if package == "kafka":
        assign_offset(theirs, 0, -1)  # it leaves the leader epoch at zero
    assert ours == theirs


@pytest.mark.parametrize("package", PACKAGES)
def test_raw_snappy_is_read_by_both(package: str) -> None:
    batch = in_raw_snappy(package, RECORDS)
    assert batch[HEADER_BYTES : HEADER_BYTES + 8] != b"\x82SNAPPY\0"
    validate_produced(batch)
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == RECORDS
    assert read_by_oracle(package, batch) == RECORDS


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("codec", list(Codec))
def test_patched_batch_is_read_with_its_new_offsets_and_times(package: str, codec: Codec) -> None:
    batch = build(RECORDS, codec=codec)
    assign_offset(batch, 10_000, 4)
    stamp_append_time(batch, 5)
    expected = [
        record._replace(offset=record.offset + 10_000, timestamp_ms=5) for record in RECORDS
    ]
    assert read_by_oracle(package, batch) == expected
    assert list(records_of(batch, limit_bytes=LIMIT_BYTES)) == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_header_fields_are_the_same(package: str) -> None:
    batch = build(
        [Record(50, 7, None, b"x"), Record(58, 6, None, b"y")],
        base_offset=42,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        last_offset_delta=20,
    )
    ours = validate(batch)
    theirs = FORMATS[package].DefaultRecordBatch(bytes(batch))
    assert theirs.base_offset == ours.base_offset
    assert theirs.magic == ours.magic
    assert theirs.crc == ours.crc
    assert theirs.attributes == ours.attributes
    assert theirs.last_offset_delta == ours.last_offset_delta
    assert theirs.first_timestamp == ours.base_timestamp_ms
    assert theirs.max_timestamp == ours.max_timestamp_ms
    assert theirs.producer_id == ours.producer_id
    assert theirs.producer_epoch == ours.producer_epoch
    assert theirs.base_sequence == ours.base_sequence
    assert theirs.next_offset == ours.next_offset
    assert theirs.is_transactional
    assert not theirs.is_control_batch


@pytest.mark.parametrize("package", PACKAGES)
def test_batches_after_one_another_are_found_as_in_a_file(package: str) -> None:
    batches = bytearray()
    for codec in Codec:
        batch = build(RECORDS[:3], codec=codec)
        assign_offset(batch, codec * 3, 0)
        batches += batch
    oracle = FILES[package].MemoryRecords(bytes(batches))
    offsets: list[int] = []
    while oracle.has_next():
        offsets += [record.offset for record in oracle.next_batch()]
    assert offsets == list(range(15))


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("kind", list(ControlType))
def test_marker_is_read_as_one(package: str, kind: ControlType) -> None:
    batch = build_control(
        kind, producer_id=8, producer_epoch=1, coordinator_epoch=2, timestamp_ms=3
    )
    oracle = FORMATS[package].DefaultRecordBatch(bytes(batch))
    assert oracle.is_control_batch
    assert oracle.is_transactional
    (record,) = oracle
    assert struct.unpack(">hh", record.key) == (0, kind)


some_bytes = st.none() | st.binary(max_size=300)
some_headers = st.lists(st.tuples(st.text(max_size=20), some_bytes), max_size=4).map(tuple)
some_records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2**48),
        key=some_bytes,
        value=some_bytes,
        headers=some_headers,
    ),
    min_size=1,
    max_size=100,
).map(lambda records: [record._replace(offset=n) for n, record in enumerate(records)])


@pytest.mark.parametrize("package", PACKAGES)
@given(records=some_records, codec=st.sampled_from(Codec))
def test_any_records_pass_in_both_directions(
    package: str, records: list[Record], codec: Codec
) -> None:
    assert read_by_oracle(package, build(records, codec=codec)) == records
    theirs = built_by_oracle(package, records, codec, producer=None)
    validate_produced(theirs)
    assert list(records_of(theirs, limit_bytes=LIMIT_BYTES)) == records
