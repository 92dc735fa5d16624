"""Walking through batches, good ones and damaged ones."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidBatch, InvalidRequest
from millstream.records.batch import BASE_OFFSET_AT, LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT
from millstream.storage.batch_walk import (
    Place,
    batch_boundary,
    batch_end,
    check_run,
    checked_batch,
    find_batch,
    next_good_batch,
    plausible_batch,
    split_batches,
)
from tests.fakes.sample_batches import batch_of
from tests.unit.storage.laid_batches import Laid, content_of, flipped, lay, lay_some

LAID = lay_some(9, base_offset=40)
LOG = memoryview(content_of(LAID))
NEXT_OFFSET = LAID[-1].header.next_offset
LENGTH_END = LENGTH_AT + 3


# --- good batches


def test_batch_that_reaches_an_offset_is_found_from_any_batch_before_it() -> None:
    for start in LAID:
        for offset in range(NEXT_OFFSET):
            expected = next(
                b.position
                for b in LAID
                if b.position >= start.position and b.header.last_offset >= offset
            )
            assert find_batch(LOG, start.position, len(LOG), offset) == expected


def test_offset_that_no_batch_reaches_leads_to_the_end() -> None:
    assert find_batch(LOG, 0, len(LOG), NEXT_OFFSET) == len(LOG)
    assert find_batch(LOG, 0, LAID[3].position, LAID[5].offset) == LAID[3].position


def test_boundary_is_the_end_of_the_last_batch_that_fits() -> None:
    for start in LAID[:3]:
        for limit in range(start.position, len(LOG) + 1):
            ends = [start.position, *(b.end for b in LAID if start.position < b.end <= limit)]
            assert batch_boundary(LOG, start.position, limit) == ends[-1]


def test_end_of_a_batch_is_where_the_next_begins() -> None:
    assert [batch_end(LOG, b.position) for b in LAID] == [b.end for b in LAID]


def test_run_of_batches_is_split() -> None:
    split = list(split_batches(LOG))
    assert [header for header, _ in split] == [b.header for b in LAID]
    assert [bytes(batch) for _, batch in split] == [b.content for b in LAID]


# --- proof of one batch


def test_sound_batch_is_proved() -> None:
    for batch in LAID:
        assert checked_batch(LOG, batch.position, len(LOG)) == batch.header
        assert plausible_batch(LOG, batch.position, len(LOG)) == batch.header


def test_flipped_bit_fails_the_proof_except_in_the_base_offset() -> None:
    content = LAID[4].content
    for position in range(len(content)):
        for bit in range(8):
            log = memoryview(flipped(content, position, bit))
            if position < LENGTH_AT:
                assert checked_batch(log, 0, len(log)).base_offset != LAID[4].offset
            else:
                with pytest.raises(InvalidRequest):
                    checked_batch(log, 0, len(log))


@pytest.mark.parametrize("position", [LEADER_EPOCH_AT, LEADER_EPOCH_AT + 3, MAGIC_AT])
def test_header_with_a_wrong_landmark_is_not_plausible(position: int) -> None:
    log = memoryview(flipped(LAID[0].content, position))
    with pytest.raises(InvalidBatch, match="no batch header"):
        plausible_batch(log, 0, len(log))


def test_batch_that_reaches_past_the_end_is_not_plausible() -> None:
    batch = LAID[2]
    for size in range(len(batch.content)):
        with pytest.raises(InvalidBatch):
            plausible_batch(LOG, batch.position, batch.position + size)


def test_length_too_small_for_a_header_is_not_plausible() -> None:
    for length in (-1, 0, 48, -(2**31)):
        content = bytearray(LAID[0].content)
        content[LENGTH_AT : LENGTH_AT + 4] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(InvalidBatch, match="does not fit"):
            plausible_batch(memoryview(content), 0, len(content))


def test_zeros_are_not_plausible() -> None:
    with pytest.raises(InvalidBatch):
        plausible_batch(memoryview(bytes(1000)), 0, 1000)


# --- proof of a run


def run(log: bytes | memoryview, place: Place, limit: int, known: set[Place]) -> tuple[Place, str]:
    view = memoryview(log)
    return check_run(view, place, limit=limit, end=len(view), gap_is_known=known.__contains__)


def test_run_is_proved_to_the_batch_that_reaches_the_limit() -> None:
    for limit in range(1, len(LOG) + 1):
        end = next(b for b in LAID if b.end >= limit)
        expected = Place(end.end, end.header.next_offset)
        assert run(LOG, Place(0, 40), limit, set()) == (expected, "")


@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("position", [BASE_OFFSET_AT, 7, LENGTH_END, MAGIC_AT, 20, 61])
def test_run_ends_before_a_damaged_batch(number: int, position: int) -> None:
    damaged = LAID[number]
    log = flipped(LOG, damaged.position + position)
    stopped, fault = run(log, Place(0, 40), len(log), set())
    assert stopped == Place(damaged.position, damaged.offset)
    assert fault


def test_gap_needs_someone_who_knows_of_it() -> None:
    laid = lay_some(6, gaps=(2, 4))
    log = content_of(laid)
    known = {Place(laid[2].position, laid[2].offset)}
    stopped, fault = run(log, Place(0, 0), len(log), set())
    assert stopped == Place(laid[2].position, laid[1].header.next_offset)
    assert "comes next" in fault
    stopped, _ = run(log, Place(0, 0), len(log), known)
    assert stopped.position == laid[4].position
    known.add(Place(laid[4].position, laid[4].offset))
    assert run(log, Place(0, 0), len(log), known) == (
        Place(len(log), laid[-1].header.next_offset),
        "",
    )


def test_offset_that_goes_back_is_a_fault_whoever_knows_of_it() -> None:
    first, second = lay(batch_of(b"a", b"b")), lay(batch_of(b"c"), base_offset=1)
    log = content_of([*first, *second])
    known = {Place(first[0].end, 1)}
    assert run(log, Place(0, 0), len(log), known)[0] == Place(first[0].end, 2)


# --- finding the way past damage


def good_after(log: bytes, damaged: Laid, limit_offset: int = NEXT_OFFSET) -> Place | None:
    return next_good_batch(
        memoryview(log),
        Place(damaged.position, damaged.offset),
        end=len(log),
        limit_offset=limit_offset,
    )


@pytest.mark.parametrize("number", range(8))
def test_flipped_bit_anywhere_in_a_batch_leads_to_the_next_one(number: int) -> None:
    damaged, following = LAID[number : number + 2]
    for position in range(damaged.position, damaged.end):
        for bit in range(8):
            found = good_after(flipped(LOG, position, bit), damaged)
            assert found == Place(following.position, following.offset)


def test_length_that_leads_to_a_later_batch_does_not_hide_the_next_one() -> None:
    value = b"v" * (127 - len(batch_of(b"")))
    laid = lay(*(batch_of(value) for _ in range(5)))
    assert {len(batch.content) for batch in laid} == {128}
    log = flipped(content_of(laid), laid[1].position + LENGTH_END, bit=7)
    assert batch_end(memoryview(log), laid[1].position) == laid[3].position
    assert good_after(log, laid[1], 5) == Place(laid[2].position, laid[2].offset)


def test_last_batch_has_none_behind_it() -> None:
    assert good_after(flipped(LOG, LAID[-1].position + 61), LAID[-1]) is None


def test_batches_with_offsets_out_of_place_are_passed_over() -> None:
    early = lay(batch_of(b"early"), base_offset=3)
    late = lay(batch_of(b"late"), base_offset=NEXT_OFFSET)
    log = content_of([LAID[0], *early, *late, LAID[1]])
    position = len(log) - len(LAID[1].content)
    assert good_after(log, LAID[0]) == Place(position, LAID[1].offset)


def test_several_damaged_batches_are_passed_over_together() -> None:
    log = bytes(LOG)
    for batch in LAID[2:5]:
        log = flipped(log, batch.position + MAGIC_AT)
    assert good_after(log, LAID[2]) == Place(LAID[5].position, LAID[5].offset)


@pytest.mark.parametrize("shift", range(-20, 8))
def test_batch_far_behind_is_found_wherever_the_search_window_ends(shift: int) -> None:
    garbage = b"\xff" * ((1 << 20) + shift)
    log = garbage + LAID[0].content
    found = next_good_batch(memoryview(log), Place(0, 40), end=len(log), limit_offset=NEXT_OFFSET)
    assert found == Place(len(garbage), 40)


def test_file_full_of_landmarks_is_searched_to_its_end() -> None:
    garbage = b"\0\0\0\0\2" * 40_000
    log = garbage + LAID[0].content
    found = next_good_batch(memoryview(log), Place(0, 40), end=len(log), limit_offset=NEXT_OFFSET)
    assert found == Place(len(garbage), 40)
