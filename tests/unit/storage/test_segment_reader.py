"""Reading one closed segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import CorruptData
from millstream.storage.batch_walk import split_batches
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.offset_index import DamagedIndex, encode_entry
from millstream.storage.segment import Segment
from millstream.storage.segment_reader import SegmentReader
from tests.fakes.sample_batches import batch_of
from tests.unit.storage.laid_batches import (
    Laid,
    content_of,
    flipped,
    lay,
    lay_some,
    store_segment,
)

LAID = lay_some(12, base_offset=40)
NEXT_OFFSET = LAID[-1].header.next_offset


def opened(segment: Segment) -> SegmentReader:
    return SegmentReader.open(LocalFilesystem(), segment)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return store_segment(tmp_path, LAID)


def damage_log(segment: Segment, position: int) -> None:
    path = Path(segment.log_path)
    path.write_bytes(flipped(path.read_bytes(), position))


def reaching(laid: list[Laid], offset: int) -> int:
    """Number of the first batch that reaches an offset."""
    return next(n for n, batch in enumerate(laid) if batch.header.last_offset >= offset)


@pytest.mark.parametrize("index_interval_bytes", [0, 150, 200, 1 << 20])
def test_read_gives_whole_batches_from_the_one_that_reaches_the_offset(
    tmp_path: Path, index_interval_bytes: int
) -> None:
    reader = opened(store_segment(tmp_path, LAID, index_interval_bytes=index_interval_bytes))
    for offset in range(40, NEXT_OFFSET):
        first = reaching(LAID, offset)
        for max_bytes in (0, 1, 99, 150, 400, 10_000):
            limit = LAID[first].position + max_bytes
            fitting = [b for b in LAID[first:] if b.end <= limit] or LAID[first : first + 1]
            view = reader.read(offset, max_bytes)
            assert view is not None
            assert bytes(view) == content_of(fitting)


def test_offset_past_the_segment_is_not_here(segment: Segment) -> None:
    assert opened(segment).read(NEXT_OFFSET, 1000) is None


def test_offset_in_a_gap_leads_to_the_batch_behind_it(tmp_path: Path) -> None:
    laid = lay_some(12, gaps=(1, 5, 6, 11))
    reader = opened(store_segment(tmp_path, laid))
    for offset in range(laid[-1].header.next_offset):
        view = reader.read(offset, 1)
        assert view is not None
        assert bytes(view) == laid[reaching(laid, offset)].content


def test_reads_in_any_order_agree(segment: Segment) -> None:
    """What was proved on the way must never be taken for more than it is."""
    offsets = list(range(40, NEXT_OFFSET))
    expected = {o: LAID[reaching(LAID, o)].content for o in offsets}
    for step in (1, 3, 5, 7, 11):
        reader = opened(segment)
        order = [offsets[(number * step) % len(offsets)] for number in range(2 * len(offsets))]
        for offset in order:
            view = reader.read(offset, 1)
            assert view is not None
            assert bytes(view) == expected[offset]


def test_batch_larger_than_the_read_is_given_whole(tmp_path: Path) -> None:
    laid = lay(batch_of(b"small"), batch_of(b"x" * 100_000), batch_of(b"small"))
    reader = opened(store_segment(tmp_path, laid))
    for number, batch in enumerate(laid):
        view = reader.read(number, 10)
        assert view is not None
        assert bytes(view) == batch.content


# --- damage


@pytest.mark.parametrize("number", range(12))
def test_read_stops_before_a_damaged_batch_and_goes_on_behind_it(
    segment: Segment, number: int
) -> None:
    damaged = LAID[number]
    damage_log(segment, damaged.position + 61)
    reader = opened(segment)
    if number:
        view = reader.read(40, 1 << 20)
        assert view is not None
        assert bytes(view) == content_of(LAID[:number])
    for offset in range(damaged.offset, damaged.header.next_offset):
        with pytest.raises(CorruptData) as failure:
            reader.read(offset, 1)
        assert failure.value.path == segment.log_path
        assert failure.value.position == damaged.position
        assert failure.value.next_offset == damaged.header.next_offset
    if number < 11:
        view = reader.read(damaged.header.next_offset, 1 << 20)
        assert view is not None
        assert bytes(view) == content_of(LAID[number + 1 :])


def test_two_damaged_batches_leave_the_one_between_them(segment: Segment) -> None:
    for number in (4, 6):
        damage_log(segment, LAID[number].position + 61)
    reader = opened(segment)
    view = reader.read(LAID[5].offset, 1 << 20)
    assert view is not None
    assert bytes(view) == LAID[5].content


def test_batch_in_the_place_of_another_is_damage(segment: Segment) -> None:
    """Whole and with a good checksum, but not the one that was written there."""
    path = Path(segment.log_path)
    content = bytearray(path.read_bytes())
    content[LAID[3].position : LAID[3].end] = LAID[3].content[:7] + b"\xff" + LAID[3].content[8:]
    path.write_bytes(content)
    with pytest.raises(CorruptData) as failure:
        opened(segment).read(LAID[3].offset, 1)
    assert failure.value.position == LAID[3].position
    assert failure.value.next_offset == LAID[4].offset


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_shifted_bytes_are_damage_and_nothing_else_is_served_for_them(
    segment: Segment, max_bytes: int
) -> None:
    """Whole batches lie where the index has none, and its entries lead into the middle of them."""
    path = Path(segment.log_path)
    content = path.read_bytes()
    expected = {batch.offset: batch.content for batch in LAID}
    for shift in range(1, len(LAID[-1].content)):
        cut_at = LAID[2].position + 30
        path.write_bytes((content[:cut_at] + b"\xff" * shift + content[cut_at:])[: len(content)])
        reader, offset, damages = opened(segment), 40, 0
        while offset < NEXT_OFFSET:
            try:
                view = reader.read(offset, max_bytes)
            except CorruptData as damage:
                offset, damages = damage.next_offset, damages + 1
                continue
            assert view is not None
            for header, batch in split_batches(view):
                assert bytes(batch) == expected[header.base_offset]
                offset = header.next_offset
        assert damages


def test_record_file_that_is_too_short_is_reported(segment: Segment) -> None:
    path = Path(segment.log_path)
    path.write_bytes(path.read_bytes()[:-1])
    reader = opened(segment)
    with pytest.raises(CorruptData) as failure:
        reader.read(NEXT_OFFSET - 1, 1)
    assert failure.value.path == segment.log_path
    assert failure.value.next_offset == NEXT_OFFSET


def test_missing_record_file_is_reported(segment: Segment) -> None:
    Path(segment.log_path).unlink()
    reader = opened(segment)
    with pytest.raises(CorruptData):
        reader.read(segment.base_offset, 1)


# --- the seal


def entries_without_seal(segment: Segment) -> bytes:
    return Path(segment.index_path).read_bytes()[:-24]


@pytest.mark.parametrize(
    ("offset", "position", "size"),
    [
        pytest.param(NEXT_OFFSET, LAID[-1].end, 2, id="an entry"),
        pytest.param(NEXT_OFFSET, LAID[-1].end - 1, 0, id="of a shorter record file"),
        pytest.param(NEXT_OFFSET + 1, LAID[-1].end, 0, id="of a later segment"),
    ],
)
def test_index_with_the_seal_of_another_is_damaged(
    segment: Segment, offset: int, position: int, size: int
) -> None:
    seal = encode_entry(offset, position, size)
    Path(segment.index_path).write_bytes(entries_without_seal(segment) + seal)
    with pytest.raises(DamagedIndex):
        opened(segment)


def test_segment_that_is_missing_behind_this_one_is_reported(segment: Segment) -> None:
    segment.next_offset = NEXT_OFFSET + 10
    reader = opened(segment)
    assert reader.read(NEXT_OFFSET - 1, 1) is not None
    with pytest.raises(CorruptData) as failure:
        reader.read(NEXT_OFFSET, 1)
    assert failure.value.next_offset == NEXT_OFFSET + 10


def test_index_without_a_seal_is_damaged(segment: Segment) -> None:
    Path(segment.index_path).write_bytes(entries_without_seal(segment))
    with pytest.raises(DamagedIndex, match="seal"):
        opened(segment)


@pytest.mark.parametrize("size", [0, 1, 23, 25])
def test_cut_index_is_damaged(segment: Segment, size: int) -> None:
    Path(segment.index_path).write_bytes(Path(segment.index_path).read_bytes()[:size])
    with pytest.raises(DamagedIndex):
        opened(segment)


def test_missing_index_is_damaged(segment: Segment) -> None:
    Path(segment.index_path).unlink()
    with pytest.raises(DamagedIndex, match="missing"):
        opened(segment)


def test_index_that_points_into_the_middle_of_a_batch_serves_nothing_wrong(
    segment: Segment,
) -> None:
    """No checksum can tell that an entry was wrong when it was written."""
    batch = LAID[6]
    entries = entries_without_seal(segment)[:24] + encode_entry(
        batch.offset, batch.position + 9, 80
    )
    seal = encode_entry(NEXT_OFFSET, segment.size, 0)
    Path(segment.index_path).write_bytes(entries + seal)
    with pytest.raises(CorruptData):
        opened(segment).read(batch.offset, 1)


# --- life


def test_view_outlives_its_reader_and_the_files(segment: Segment) -> None:
    reader = opened(segment)
    view = reader.read(40, 1 << 20)
    assert view is not None
    del reader
    for path in (segment.log_path, segment.index_path):
        Path(path).unlink()
    assert bytes(view) == content_of(LAID)


def test_index_of_a_read_segment_is_mapped(segment: Segment) -> None:
    reader = opened(segment)
    assert reader.read(NEXT_OFFSET - 1, 1) is not None
    maps = Path("/proc/self/maps").read_text()
    assert segment.log_path in maps
    assert segment.index_path in maps
