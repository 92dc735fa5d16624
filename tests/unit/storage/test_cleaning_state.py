"""What compaction remembers of a log: in memory, on disk, and after damage."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from millstream.storage.cleaning_state import (
    MAX_HORIZONS,
    CleaningState,
    Horizon,
    add_horizon,
    cut_cleaning_state,
    read_cleaning_state,
    write_cleaning_state,
)
from millstream.storage.filesystem import LocalFilesystem

DISK = LocalFilesystem()
STATE = CleaningState(
    clean_offset=100,
    planned_offset=150,
    expired_offset=40,
    horizons=(Horizon(60, 1000), Horizon(100, 2000)),
)


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_cleaning_state(DISK, str(tmp_path), STATE)
    assert read_cleaning_state(DISK, str(tmp_path)) == STATE


def test_log_without_the_file_counts_as_never_compacted(tmp_path: Path) -> None:
    assert read_cleaning_state(DISK, str(tmp_path)) == CleaningState()


def test_flipped_bit_anywhere_makes_the_log_count_as_never_compacted(tmp_path: Path) -> None:
    write_cleaning_state(DISK, str(tmp_path), STATE)
    path = tmp_path / "cleaning-state"
    content = path.read_bytes()
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 0x10
        path.write_bytes(flipped)
        assert read_cleaning_state(DISK, str(tmp_path)) == CleaningState()


def test_cut_file_makes_the_log_count_as_never_compacted(tmp_path: Path) -> None:
    write_cleaning_state(DISK, str(tmp_path), STATE)
    path = tmp_path / "cleaning-state"
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert read_cleaning_state(DISK, str(tmp_path)) == CleaningState()


def test_example_in_the_format_document_is_right(tmp_path: Path) -> None:
    (tmp_path / "cleaning-state").write_bytes(
        bytes.fromhex(
            "4d534353 0002 3aeeb2a1"
            "0000000000000064 0000000000000096 0000000000000028 00000002"
            "000000000000003c 00000000000003e8"
            "0000000000000064 00000000000007d0"
        )
    )
    assert read_cleaning_state(DISK, str(tmp_path)) == STATE


@pytest.mark.parametrize(
    ("now_ms", "below"), [(0, 40), (1499, 40), (1500, 60), (2499, 60), (2500, 100), (9999, 100)]
)
def test_tombstones_may_go_when_their_horizon_is_old_enough(now_ms: int, below: int) -> None:
    assert STATE.expired_below(now_ms, 500) == below


def test_what_expired_stays_expired_without_horizons() -> None:
    assert CleaningState().expired_below(9999, 500) == 0
    assert CleaningState(expired_offset=40).expired_below(0, 500) == 40


def test_truncated_log_forgets_what_was_known_of_its_end(tmp_path: Path) -> None:
    write_cleaning_state(DISK, str(tmp_path), STATE)
    cut_cleaning_state(DISK, str(tmp_path), 150)
    assert read_cleaning_state(DISK, str(tmp_path)) == STATE
    cut_cleaning_state(DISK, str(tmp_path), 120)
    assert read_cleaning_state(DISK, str(tmp_path)) == replace(STATE, planned_offset=120)
    cut_cleaning_state(DISK, str(tmp_path), 80)
    assert read_cleaning_state(DISK, str(tmp_path)) == CleaningState(
        clean_offset=80,
        planned_offset=80,
        expired_offset=40,
        horizons=(Horizon(60, 1000), Horizon(80, 2000)),
    )
    cut_cleaning_state(DISK, str(tmp_path), 30)
    assert read_cleaning_state(DISK, str(tmp_path)) == CleaningState(
        clean_offset=30, planned_offset=30, expired_offset=30, horizons=(Horizon(30, 1000),)
    )


def test_truncation_of_a_log_never_compacted_writes_nothing(tmp_path: Path) -> None:
    cut_cleaning_state(DISK, str(tmp_path), 0)
    assert list(tmp_path.iterdir()) == []


def test_horizons_stay_few_and_never_let_a_tombstone_go_early() -> None:
    passes = [Horizon(10 * n, n * n) for n in range(1, 200)]
    horizons: tuple[Horizon, ...] = ()
    for number, new in enumerate(passes, start=1):
        horizons = add_horizon(horizons, new)
        assert len(horizons) <= MAX_HORIZONS
        assert horizons[-1] == new
        assert all(a.end_offset < b.end_offset for a, b in pairwise(horizons))
        assert all(a.cleaned_at_ms <= b.cleaned_at_ms for a, b in pairwise(horizons))
        for passed in passes[:number]:
            covering = next(h for h in horizons if h.end_offset >= passed.end_offset)
            assert covering.cleaned_at_ms >= passed.cleaned_at_ms


def test_clock_that_goes_back_does_not_make_a_horizon_older_than_the_one_before() -> None:
    horizons = add_horizon((Horizon(10, 5000),), Horizon(20, 4000))
    assert horizons == (Horizon(10, 5000), Horizon(20, 5000))
