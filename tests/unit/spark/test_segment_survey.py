"""What segment files are found to hold, with no broker to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import CorruptData, InvalidOption, UnknownTopic
from millstream.records.batch_builder import build
from millstream.records.control import ControlType, build_control
from millstream.records.record import Record
from millstream.spark.offsets import EARLIEST, LATEST, OffsetRange
from millstream.spark.segment_scan import read_segment, segment_ranges
from millstream.spark.segment_survey import SegmentDirectory

PLACE = ("t", 0)


def batch(first: int, count: int, *, producer_id: int = -1) -> bytes:
    records = [Record(n, n * 1000, None, b"%d" % n) for n in range(first, first + count)]
    if producer_id < 0:
        return bytes(build(records, base_offset=first))
    return bytes(
        build(
            records,
            base_offset=first,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=first,
            transactional=True,
        )
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        build_control(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=offset * 1000,
            base_offset=offset,
        )
    )


def directory(tmp_path: Path, **segments: bytes) -> SegmentDirectory:
    """Names are base offsets after an underscore."""
    folder = tmp_path / "topics" / "t" / "0"
    folder.mkdir(parents=True)
    for name, content in segments.items():
        (folder / f"{int(name[1:]):020}.log").write_bytes(content)
    return SegmentDirectory(str(tmp_path))


def values(found: SegmentDirectory, start: int, end: int, *, committed: bool) -> list[bytes]:
    return [
        value.as_py()
        for task in segment_ranges(OffsetRange("t", 0, start, end), found.survey(PLACE))
        for rows in read_segment(task, columns=["value"], committed=committed)
        for value in rows.column(0)
    ]


def numbers(*offsets: int) -> list[bytes]:
    return [b"%d" % offset for offset in offsets]


def test_segments_are_read_in_order_and_within_bounds(tmp_path: Path) -> None:
    found = directory(tmp_path, _5=batch(5, 3) + batch(8, 2), _10=batch(10, 4) + bytes(4096))
    assert found.partitions(None) == {"t": [0]}
    assert found.offsets([PLACE], EARLIEST, committed=True) == {PLACE: 5}
    assert found.offsets([PLACE], LATEST, committed=True) == {PLACE: 14}
    assert found.offsets([PLACE], 8500, committed=True) == {PLACE: 9}
    assert values(found, 6, 12, committed=True) == numbers(*range(6, 12))


def test_transaction_across_segments_counts_as_it_ended(tmp_path: Path) -> None:
    found = directory(
        tmp_path,
        _0=batch(0, 2, producer_id=7) + batch(2, 2) + batch(4, 1, producer_id=8),
        _5=batch(5, 1, producer_id=7)
        + marker(6, 7, ControlType.ABORT)
        + marker(7, 8, ControlType.COMMIT)
        + batch(8, 2, producer_id=7)
        + marker(10, 7, ControlType.COMMIT),
        _11=batch(11, 1) + batch(12, 3, producer_id=9),
    )
    assert found.offsets([PLACE], LATEST, committed=True) == {PLACE: 12}
    assert found.offsets([PLACE], LATEST, committed=False) == {PLACE: 15}
    assert values(found, 0, 12, committed=True) == numbers(2, 3, 4, 8, 9, 11)
    everything = values(found, 0, 15, committed=False)
    assert everything == numbers(*range(6), 8, 9, 11, 12, 13, 14)


@pytest.mark.parametrize("kept", [5, 30, 70])
def test_torn_end_is_left_out(tmp_path: Path, kept: int) -> None:
    torn = batch(3, 3)[:kept]
    found = directory(tmp_path, _0=batch(0, 3) + torn + bytes(200))
    assert found.offsets([PLACE], LATEST, committed=True) == {PLACE: 3}
    assert values(found, 0, 3, committed=True) == numbers(0, 1, 2)


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    damaged = bytearray(batch(3, 3))
    damaged[-1] ^= 1
    found = directory(tmp_path, _0=batch(0, 3) + damaged + batch(6, 1))
    with pytest.raises(CorruptData):
        found.survey(PLACE)


def test_cut_segment_before_the_last_is_an_error(tmp_path: Path) -> None:
    found = directory(tmp_path, _0=batch(0, 3)[:-1], _3=batch(3, 1))
    with pytest.raises(CorruptData):
        found.survey(PLACE)


def test_folder_that_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="data directory"):
        SegmentDirectory(str(tmp_path))
    with pytest.raises(UnknownTopic):
        directory(tmp_path).partitions(["u"])
