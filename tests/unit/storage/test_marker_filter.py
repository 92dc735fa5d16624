"""Which markers of transactions stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.records import BatchHeader, ControlType, assign_offset, parse_header
from millstream.storage.marker_filter import MarkerFilter
from tests.fakes.keyed_log import marker_of


def marker(offset: int, producer_id: int = 7) -> BatchHeader:
    batch = marker_of(producer_id, ControlType.COMMIT)
    assign_offset(batch, offset, 0)
    return parse_header(batch)


def expired(
    awaited: Mapping[int, Sequence[int]] | None = None, *, below: int = 100
) -> MarkerFilter:
    return MarkerFilter(expired_below=below, awaited=awaited or {})


def test_marker_goes_when_its_time_has_passed() -> None:
    markers = expired(below=50)
    assert not markers.keeps(marker(49))
    assert markers.keeps(marker(50))


def test_marker_stays_while_records_of_its_transaction_do() -> None:
    markers = expired()
    markers.note_records(7)
    assert markers.keeps(marker(10))
    assert not markers.keeps(marker(20))


def test_records_of_another_producer_do_not_count() -> None:
    markers = expired()
    markers.note_records(8)
    assert not markers.keeps(marker(10))
    assert markers.keeps(marker(11, producer_id=8))


def test_aborted_records_that_go_keep_no_marker() -> None:
    markers = expired()
    markers.note_dropped(7)
    assert not markers.keeps(marker(10))


def test_first_marker_of_each_producer_behind_a_skipped_segment_stays() -> None:
    markers = expired()
    assert not markers.keeps(marker(10))
    markers.skip()
    assert markers.keeps(marker(20))
    assert markers.keeps(marker(21, producer_id=8))
    assert not markers.keeps(marker(22))
    markers.skip()
    assert markers.keeps(marker(30))


def test_first_marker_behind_a_snapshot_that_waits_for_it_stays() -> None:
    markers = expired({7: [60, 20]})
    assert not markers.keeps(marker(19))
    assert not markers.keeps(marker(20, producer_id=8))
    assert markers.keeps(marker(20))
    assert not markers.keeps(marker(30))
    assert markers.keeps(marker(70))
    assert not markers.keeps(marker(80))


def test_one_marker_may_end_what_two_snapshots_wait_for() -> None:
    markers = expired({7: [60, 20]})
    assert markers.keeps(marker(61))
    assert not markers.keeps(marker(62))


def test_records_wait_for_their_marker() -> None:
    markers = expired()
    is_one_missing = [markers.is_one_missing]
    markers.note_records(7)
    markers.note_dropped(8)
    is_one_missing.append(markers.is_one_missing)
    for offset, producer_id in ((10, 7), (11, 8)):
        markers.keeps(marker(offset, producer_id))
        is_one_missing.append(markers.is_one_missing)
    assert is_one_missing == [False, True, True, False]
