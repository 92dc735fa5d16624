"""What a scan of a record file makes of it."""

from __future__ import annotations

import pytest

from millstream.records.batch import LENGTH_AT, MAGIC_AT
from millstream.storage.batch_walk import Place
from millstream.storage.segment_scan import EVERYTHING, ScanRange, SegmentScan, scan_segment
from tests.fakes.sample_batches import batch_of, timed_batch
from tests.unit.storage.laid_batches import Laid, content_of, flipped, indexes_of, lay, lay_some

LAID = lay_some(9, base_offset=40)
LOG = content_of(LAID)
NEXT_OFFSET = LAID[-1].header.next_offset
DELTA_END = 26


def scan(
    log: bytes,
    *,
    base_offset: int = 40,
    limit_offset: int = NEXT_OFFSET,
    synced_offset: int = EVERYTHING,
    check_from_offset: int = 0,
    index_interval_bytes: int = 200,
) -> SegmentScan:
    return scan_segment(
        memoryview(log),
        ScanRange(
            path="the.log",
            base_offset=base_offset,
            limit_offset=limit_offset,
            synced_offset=synced_offset,
            check_from_offset=check_from_offset,
            index_interval_bytes=index_interval_bytes,
        ),
    )


def lost(found: SegmentScan) -> list[tuple[int, int]]:
    """Offsets that damage took away, by runs."""
    return [(damage.offset, damage.end_offset) for damage in found.damage]


def recovered(log: bytes, synced_offset: int) -> SegmentScan:
    """As recovery scans the last segment."""
    return scan(
        log,
        limit_offset=EVERYTHING,
        synced_offset=synced_offset,
        check_from_offset=synced_offset,
    )


def test_sound_file_is_scanned_to_its_end() -> None:
    found = scan(LOG)
    assert found.end == Place(len(LOG), NEXT_OFFSET)
    assert found.batches == len(LAID)
    assert not found.torn
    assert not found.damage


def test_empty_file_ends_where_it_begins() -> None:
    found = scan(b"", limit_offset=EVERYTHING, synced_offset=0)
    assert found.end == Place(0, 40)
    assert not found.torn
    assert not found.damage


def test_largest_timestamp_is_found() -> None:
    laid = lay(timed_batch(100, 900), timed_batch(300))
    found = scan(content_of(laid), base_offset=0, limit_offset=3)
    assert found.indexes.max_timestamp_ms == 900


def test_gaps_of_compaction_are_kept() -> None:
    laid = lay_some(9, gaps=(0, 3, 4, 8))
    found = scan(content_of(laid), base_offset=0, limit_offset=laid[-1].header.next_offset)
    assert found.batches == 9
    assert not found.damage


def test_last_batch_may_end_before_the_next_segment_begins() -> None:
    """Compaction may have removed what was behind it."""
    assert not scan(LOG, limit_offset=NEXT_OFFSET + 100).damage


# --- damage in what was synced


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("damaged", LAID, ids=lambda batch: f"batch at {batch.offset}")
def test_flipped_bit_costs_one_batch(damaged: Laid, bit: int) -> None:
    for position in range(damaged.position, damaged.end):
        found = scan(flipped(LOG, position, bit))
        assert lost(found) == [(damaged.offset, damaged.header.next_offset)]
        assert found.damage[0].path == "the.log"
        assert found.damage[0].position == damaged.position
        assert found.damage[0].end_position == damaged.end
        assert found.batches == len(LAID) - 1
        assert found.end == Place(len(LOG), NEXT_OFFSET)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("damaged", LAID, ids=lambda batch: f"batch at {batch.offset}")
def test_flipped_bit_in_a_header_that_needs_no_proof_costs_one_batch(
    damaged: Laid, bit: int
) -> None:
    """Place, length and last offset: what a scan that hops from header to header goes by."""
    fields = [*range(MAGIC_AT + 1), *range(23, DELTA_END + 1)]
    for position in fields:
        found = recovered(flipped(LOG, damaged.position + position, bit), NEXT_OFFSET)
        assert lost(found) == [(damaged.offset, damaged.header.next_offset)]
        assert found.end == Place(len(LOG), NEXT_OFFSET)


def test_lost_length_leads_to_the_next_sound_batch() -> None:
    log = flipped(LOG, LAID[3].position + LENGTH_AT)
    assert lost(scan(log)) == [(LAID[3].offset, LAID[4].offset)]


def test_neighbours_lost_together_are_one_damage() -> None:
    log = flipped(flipped(LOG, LAID[3].position + 61), LAID[4].position + 61)
    assert lost(scan(log)) == [(LAID[3].offset, LAID[5].offset)]


@pytest.mark.parametrize("fill", [1, 0x7F, 0xFF])
@pytest.mark.parametrize("into", range(1, 9))
def test_damage_that_reaches_into_the_next_base_offset_moves_nothing(fill: int, into: int) -> None:
    """Its batch still has a good checksum, at an offset that the log never had."""
    hit = range(LAID[4].position - 3, LAID[4].position + into)
    log = bytearray(LOG)
    log[hit.start : hit.stop] = bytes([fill]) * len(hit)
    for found in (scan(bytes(log)), recovered(bytes(log), NEXT_OFFSET)):
        assert lost(found) == [(LAID[3].offset, LAID[5].offset)]
        assert found.end == Place(len(LOG), NEXT_OFFSET)


def test_unsynced_batches_behind_damage_are_kept() -> None:
    found = recovered(flipped(LOG, LAID[5].position + 61), LAID[6].offset)
    assert lost(found) == [(LAID[5].offset, LAID[6].offset)]
    assert found.end == Place(len(LOG), NEXT_OFFSET)


def test_batches_lost_apart_are_two_damages() -> None:
    log = flipped(flipped(LOG, LAID[1].position + 61), LAID[4].position + 61)
    assert lost(scan(log)) == [
        (LAID[1].offset, LAID[2].offset),
        (LAID[4].offset, LAID[5].offset),
    ]


def test_end_that_was_synced_and_is_missing_is_damage() -> None:
    found = recovered(LOG[: LAID[6].position], LAID[8].offset)
    assert lost(found) == [(LAID[6].offset, LAID[8].offset)]
    assert found.end == Place(LAID[6].position, LAID[8].offset)


def test_damage_tells_people_what_is_lost() -> None:
    (damage,) = scan(flipped(LOG, LAID[3].position + 61)).damage
    text = str(damage)
    assert f"the.log: bytes {LAID[3].position} to {LAID[4].position} are damaged" in text
    assert f"offsets {LAID[3].offset} to {LAID[4].offset - 1} cannot be read" in text


# --- what a crash tore


@pytest.mark.parametrize("number", range(9))
def test_first_unsound_batch_that_was_not_synced_ends_the_log(number: int) -> None:
    torn = LAID[number]
    for position in range(len(torn.content)):
        found = recovered(flipped(LOG, torn.position + position), torn.offset)
        assert found.end == Place(torn.position, torn.offset)
        assert found.torn
        assert not found.damage


def test_gap_in_what_was_not_synced_ends_the_log() -> None:
    laid = lay_some(6, base_offset=40, gaps=(4,))
    found = recovered(content_of(laid), laid[2].offset)
    assert found.end == Place(laid[4].position, laid[3].header.next_offset)
    assert "comes next" in found.torn


def test_batch_cut_at_any_byte_ends_the_log_before_it() -> None:
    last = LAID[-1]
    for size in range(last.position, last.end):
        found = recovered(LOG[:size], last.offset)
        assert found.end == Place(last.position, last.offset)


def test_zeros_behind_the_last_batch_end_the_log() -> None:
    found = recovered(LOG + bytes(5000), NEXT_OFFSET)
    assert found.end == Place(len(LOG), NEXT_OFFSET)


def test_only_what_was_not_synced_is_proved() -> None:
    """Except for the batch that leads up to it, which tells where it begins."""
    found = recovered(LOG, LAID[6].offset)
    assert LAID[5].position <= found.checked_from <= LAID[6].position
    assert recovered(LOG, NEXT_OFFSET).checked_from >= LAID[8].position
    assert recovered(LOG, 0).checked_from == 0


# --- indexes


@pytest.mark.parametrize("gaps", [(), (2, 3, 7)])
def test_scan_gives_the_indexes_that_the_writer_would_have_written(gaps: tuple[int, ...]) -> None:
    laid = lay_some(9, gaps=gaps)
    found = scan(content_of(laid), base_offset=0, limit_offset=laid[-1].header.next_offset)
    assert found.indexes.offset_entries == indexes_of(laid).offset_entries
    assert found.indexes.time_entries == indexes_of(laid).time_entries


def test_batch_behind_damage_can_be_found_without_it() -> None:
    laid = lay(*(batch_of(b"x") for _ in range(6)))
    found = scan(
        flipped(content_of(laid), laid[2].position + 61),
        base_offset=0,
        limit_offset=6,
        index_interval_bytes=0,
    )
    assert len(found.indexes.offset_entries) == 5 * 24
