"""Which batches get an entry."""

from __future__ import annotations

from millstream.storage.index_builder import IndexBuilder
from millstream.storage.offset_index import ENTRY_BYTES, IndexEntry, OffsetIndex
from millstream.storage.partition_log import TimedOffset
from millstream.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from millstream.storage.time_index import TimeIndex


def entries_of(builder: IndexBuilder) -> list[IndexEntry]:
    content = bytes(builder.offset_entries)
    index = OffsetIndex("x", memoryview(content), len(content) // ENTRY_BYTES)
    return [index.entry(number) for number in range(index.count)]


def times_of(builder: IndexBuilder) -> list[TimedOffset]:
    content = bytes(builder.time_entries)
    index = TimeIndex("x", content, len(content) // TIME_ENTRY_BYTES)
    return [index.entry(number) for number in range(index.count)]


def test_first_batch_gets_an_entry_and_then_one_per_interval() -> None:
    builder = IndexBuilder(250)
    for number in range(10):
        builder.add(10 + number, 100 * number, 100, 0)
    assert [entry.position for entry in entries_of(builder)] == [0, 300, 600, 900]
    assert [entry.offset for entry in entries_of(builder)] == [10, 13, 16, 19]
    assert {entry.size for entry in entries_of(builder)} == {100}


def test_interval_of_zero_indexes_every_batch() -> None:
    builder = IndexBuilder(0)
    for number in range(5):
        builder.add(number, 70 * number, 70, 0)
    assert [entry.offset for entry in entries_of(builder)] == [0, 1, 2, 3, 4]


def test_batch_behind_a_gap_gets_an_entry() -> None:
    builder = IndexBuilder(1000)
    builder.add(0, 0, 100, 0)
    builder.add(1, 100, 100, 0)
    builder.add(7, 200, 100, 0, follows=False)
    builder.add(8, 300, 100, 0)
    assert [entry.offset for entry in entries_of(builder)] == [0, 7]


def test_entries_go_on_where_an_earlier_builder_stopped() -> None:
    builder = IndexBuilder(250, last_position=300)
    builder.add(5, 500, 100, 0)
    builder.add(6, 600, 100, 0)
    assert [entry.offset for entry in entries_of(builder)] == [6]


def test_time_entry_tells_the_largest_time_below_its_offset() -> None:
    builder = IndexBuilder(0)
    for offset, timestamp_ms in enumerate([50, 40, 70, 60, 65, 80]):
        builder.add(offset, 100 * offset, 100, timestamp_ms)
    assert builder.max_timestamp_ms == 80
    assert times_of(builder) == [TimedOffset(1, 50), TimedOffset(3, 70)]


def test_time_entries_are_as_sparse_as_offset_entries() -> None:
    builder = IndexBuilder(250)
    for number in range(10):
        builder.add(number, 100 * number, 100, 1000 + number)
    assert times_of(builder) == [
        TimedOffset(3, 1002),
        TimedOffset(6, 1005),
        TimedOffset(9, 1008),
    ]


def test_records_without_a_time_get_no_time_entry_on_the_way() -> None:
    builder = IndexBuilder(0)
    for number in range(3):
        builder.add(number, 100 * number, 100, -1)
    assert times_of(builder) == []
    assert builder.max_timestamp_ms == -1


def test_seal_ends_both_indexes() -> None:
    builder = IndexBuilder(1000)
    builder.add(10, 0, 100, 500)
    builder.add(11, 100, 100, 400)
    builder.seal(12, 200)
    assert entries_of(builder) == [IndexEntry(10, 0, 100), IndexEntry(12, 200, 0)]
    assert times_of(builder) == [TimedOffset(12, 500)]
