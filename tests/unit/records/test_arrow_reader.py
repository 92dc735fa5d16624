"""Reading batches into columns: what is left out, where to go on, and what damage does."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import (
    CorruptData,
    InvalidBatch,
    InvalidRequest,
    MessageTooLarge,
    UnsupportedCodec,
)
from millstream.records import (
    Codec,
    ControlType,
    Record,
    arrow_reader,
    arrow_twin,
    build,
    build_control,
    stamp_append_time,
)
from millstream.records import arrow_pure as pure
from millstream.records.arrow import COLUMNS, ColumnReader, schema
from millstream.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_PREFIX_BYTES,
    seal,
)
from tests.fakes.patience import HANG_S

BUILDERS = [pure.ColumnBuilder]
if arrow_twin.NATIVE:
    BUILDERS.append(arrow_twin.ColumnBuilder)


@pytest.fixture(params=BUILDERS, ids=["pure", "native"][: len(BUILDERS)])
def builder(request: pytest.FixtureRequest) -> Any:
    return request.param


def reader_of(builder: Any, **options: Any) -> ColumnReader:
    chosen = {"columns": ["offset"], "start": 0, "end": None, "committed": True, **options}
    return ColumnReader("shop", 3, **chosen, builder=builder)


def batch_at(offset: int, *, count: int = 1, value: bytes = b"v", **options: Any) -> bytes:
    records = [Record(offset + n, 1_000 + n, None, value) for n in range(count)]
    return bytes(build(records, base_offset=offset, **options))


def marker_at(offset: int, kind: ControlType, producer_id: int) -> bytes:
    return bytes(
        build_control(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
    )


def emptied(batch: bytes) -> bytes:
    """What Apache Kafka keeps of a batch where compaction takes the last that a producer sent."""
    rest = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">i", rest, LENGTH_AT, HEADER_BYTES - LENGTH_PREFIX_BYTES)
    struct.pack_into(">i", rest, HEADER_BYTES - 4, 0)
    seal(rest)
    return bytes(rest)


def offsets_in(tables: list[pa.RecordBatch]) -> list[int]:
    return [offset for table in tables for offset in table.column("offset").to_pylist()]


def sent_by(producer_id: int) -> dict[str, Any]:
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }


def test_schema_is_what_spark_makes_of_its_kafka_source_schema() -> None:
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    binary, text = types.BinaryType(), types.StringType()
    header = types.StructType().add("key", text).add("value", binary)
    fields = {
        "key": binary,
        "value": binary,
        "topic": text,
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    spark_schema = types.StructType([types.StructField(*field) for field in fields.items()])
    assert schema(COLUMNS).equals(to_arrow_schema(spark_schema, timezone="UTC"))


def test_unknown_column_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"'colour'.*timestampType"):
        schema(["value", "colour"])


def test_chosen_columns_come_in_the_order_asked_for(builder: Any) -> None:
    columns = ["partition", "value", "topic", "timestampType", "timestamp"]
    reader = reader_of(builder, columns=columns)
    stamped = bytearray(batch_at(1))
    stamp_append_time(stamped, 2_000)
    assert not reader.feed(batch_at(0) + stamped)
    (table,) = reader.rest()
    assert table.schema.names == columns
    assert [list(row.values())[:4] for row in table.to_pylist()] == [
        [3, b"v", "shop", 0],
        [3, b"v", "shop", 1],
    ]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 2_000_000]
    assert not reader.rest()


def test_records_outside_the_range_are_left_out(builder: Any) -> None:
    reader = reader_of(builder, start=4, end=11)
    payload = batch_at(0, count=5) + batch_at(5, count=5) + batch_at(10, count=5) + batch_at(15)
    assert offsets_in(reader.feed(payload) + reader.rest()) == list(range(4, 11))
    assert reader.next_offset == 11
    assert not reader.feed(batch_at(16))
    assert not reader.rest()


def test_gap_up_to_the_end_of_the_range_is_passed_over(builder: Any) -> None:
    reader = reader_of(builder, start=0, end=5)
    assert not reader.feed(batch_at(9))
    assert reader.next_offset == 5
    assert not reader.rest()


def test_records_that_compaction_removed_at_the_end_of_a_batch_are_passed_over(
    builder: Any,
) -> None:
    reader = reader_of(builder)
    reader.feed(build([Record(0, 0, b"k", b"v")], last_offset_delta=9))
    assert reader.next_offset == 10


def test_batch_that_is_cut_off_is_left_for_the_next_time(builder: Any) -> None:
    reader = reader_of(builder)
    second = batch_at(5, count=3)
    for size_bytes in (1, 16, 17, 60, len(second) - 1):
        reader.feed(batch_at(0, count=5) + second[:size_bytes])
        assert reader.next_offset == 5
    reader.feed(second)
    assert offsets_in(reader.rest()) == list(range(8))


def test_same_data_fed_again_comes_out_once(builder: Any) -> None:
    reader = reader_of(builder)
    reader.feed(batch_at(0, count=3))
    reader.feed(batch_at(0, count=3) + batch_at(3))
    assert offsets_in(reader.rest()) == [0, 1, 2, 3]


def test_hole_of_zeros_is_the_end_of_a_segment(builder: Any) -> None:
    reader = reader_of(builder)
    reader.feed(batch_at(0) + bytes(4096))
    assert offsets_in(reader.rest()) == [0]
    assert reader.next_offset == 1


def test_full_batches_of_rows_come_out_as_they_fill(builder: Any) -> None:
    reader = reader_of(builder, batch_rows=4)
    first = reader.feed(batch_at(0, count=6))
    second = reader.feed(batch_at(6, count=6))
    assert [table.num_rows for table in first + second] == [4, 4, 4]
    assert not reader.rest()


def test_many_bytes_fill_a_batch_of_rows_too(builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_reader, "BATCH_BYTES", 1_000)
    reader = reader_of(builder, columns=["offset", "value"])
    tables = reader.feed(batch_at(0, count=7, value=bytes(400)))
    assert [table.num_rows for table in tables + reader.rest()] == [3, 3, 1]


def test_markers_are_left_out_and_passed_over(builder: Any) -> None:
    reader = reader_of(builder)
    reader.feed(batch_at(0, **sent_by(7)) + marker_at(1, ControlType.COMMIT, 7))
    assert offsets_in(reader.rest()) == [0]
    assert reader.next_offset == 2


def test_only_what_an_aborted_transaction_wrote_is_left_out(builder: Any) -> None:
    payload = b"".join(
        [
            batch_at(0, **sent_by(7)),
            batch_at(1, **sent_by(8)),
            batch_at(2),
            batch_at(3, **sent_by(7)),
            marker_at(4, ControlType.ABORT, 7),
            batch_at(5, **sent_by(7)),
            marker_at(6, ControlType.COMMIT, 7),
            batch_at(7, **sent_by(7)),
            marker_at(8, ControlType.ABORT, 7),
        ]
    )
    aborted = [(7, 0), (7, 7)]
    committed, everything = reader_of(builder), reader_of(builder, committed=False)
    committed.feed(payload, aborted)
    everything.feed(payload, aborted)
    assert offsets_in(committed.rest()) == [1, 2, 5]
    assert offsets_in(everything.rest()) == [0, 1, 2, 3, 5, 7]
    assert committed.next_offset == everything.next_offset == 9


def test_batches_that_kafka_has_emptied_are_passed_over(builder: Any) -> None:
    payload = b"".join(
        [
            emptied(batch_at(0, count=3, **sent_by(7))),
            emptied(marker_at(3, ControlType.ABORT, 7)),
            batch_at(4),
            emptied(marker_at(5, ControlType.COMMIT, 8)),
        ]
    )
    reader = reader_of(builder)
    reader.feed(payload)
    assert offsets_in(reader.rest()) == [4]
    assert reader.next_offset == 6


def test_abort_seen_in_one_answer_counts_in_the_next(builder: Any) -> None:
    reader = reader_of(builder)
    reader.feed(batch_at(0, **sent_by(7)) + marker_at(1, ControlType.ABORT, 7), [(7, 0)])
    reader.feed(batch_at(2, **sent_by(7)), [(7, 0)])
    assert offsets_in(reader.rest()) == [2]


def test_reading_that_starts_inside_an_aborted_transaction_leaves_it_out(builder: Any) -> None:
    reader = reader_of(builder, start=5)
    payload = batch_at(5, **sent_by(7)) + marker_at(6, ControlType.ABORT, 7) + batch_at(7)
    reader.feed(payload, [(7, 2)])
    assert offsets_in(reader.rest()) == [7]


def test_changed_byte_is_reported_with_its_place(builder: Any) -> None:
    first, second = batch_at(0), bytearray(batch_at(1))
    second[-1] ^= 1
    reader = reader_of(builder)
    with pytest.raises(CorruptData, match=r"shop-3.*checksum") as caught:
        reader.feed(first + second)
    assert caught.value.position == len(first)
    assert reader.next_offset == 1


def test_records_that_lie_behind_a_right_checksum_are_damage(builder: Any) -> None:
    batch = bytearray(batch_at(4))
    batch[61] += 2
    seal(batch)
    with pytest.raises(CorruptData, match="the batch at 4: "):
        reader_of(builder).feed(batch)


def test_record_that_reaches_past_its_batch_is_damage_even_where_nobody_wants_it(
    builder: Any,
) -> None:
    batch = bytearray(build([Record(0, 0, None, None, (("k", b"value"),))]))
    # One byte fewer than the record and its last header both say.
    del batch[-1]
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - LENGTH_PREFIX_BYTES)
    seal(batch)
    chosen = {"count": 1, "base_offset": 0, "last_offset": 0, "base_timestamp_ms": 0}
    reader = builder(["offset"], max_rows=9, max_bytes=99)
    reader.open(batch[HEADER_BYTES:], **chosen, append_time_ms=None, low=0, high=0)
    with pytest.raises(InvalidBatch):
        reader.fill()


@pytest.mark.parametrize("base_offset", [0, -5, 2**63 - 1])
def test_offsets_that_do_not_grow_are_damage(builder: Any, base_offset: int) -> None:
    second = bytearray(batch_at(0))
    struct.pack_into(">q", second, 0, base_offset)
    with pytest.raises(CorruptData, match=f"offset {base_offset} where 2 comes next"):
        reader_of(builder).feed(batch_at(0, count=2) + second)


def test_marker_that_ends_nothing_is_damage(builder: Any) -> None:
    batch = build([Record(0, 0, b"?", b"")], control=True, **sent_by(7))
    with pytest.raises(CorruptData, match="the batch at 0: a control record"):
        reader_of(builder).feed(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_format_of_old_is_refused_by_name(builder: Any, magic: int) -> None:
    message = struct.pack(">qiIbbii", 0, 14, 0, magic, 0, -1, -1)
    with pytest.raises(InvalidBatch, match=f"shop-3 holds messages of format {magic}"):
        reader_of(builder).feed(message)


def test_unknown_codec_is_refused_with_its_place(builder: Any) -> None:
    batch = bytearray(batch_at(0))
    struct.pack_into(">h", batch, ATTRIBUTES_AT, 6)
    seal(batch)
    with pytest.raises(UnsupportedCodec) as caught:
        reader_of(builder).feed(batch)
    assert caught.value.__notes__ == ["in shop-3, after offset 0"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batch_that_unpacks_to_too_much_is_refused_with_its_place(
    builder: Any, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_reader, "MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(MessageTooLarge) as caught:
        reader_of(builder).feed(batch_at(8, value=bytes(10_000), codec=codec))
    assert caught.value.__notes__ == ["in shop-3, the batch at offset 8"]


def test_python_twin_serves_where_nothing_was_compiled() -> None:
    script = (
        "import sys; sys.modules['millstream.records._arrow'] = None\n"
        "from millstream.records import arrow, arrow_pure, arrow_twin\n"
        "assert not arrow.NATIVE\n"
        "assert arrow_twin.ColumnBuilder is arrow_pure.ColumnBuilder\n"
        "assert arrow_twin.RowEncoder is arrow_pure.RowEncoder\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_S)


def test_records_need_no_pyarrow() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import millstream.records, millstream.app, millstream.__main__\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=HANG_S)
