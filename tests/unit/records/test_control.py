"""Transaction markers."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidBatch
from millstream.records import (
    Codec,
    ControlMarker,
    ControlType,
    Record,
    build,
    build_control,
    parse_control,
    records_of,
    validate,
)


@pytest.mark.parametrize("kind", list(ControlType))
def test_built_marker_is_valid_and_reads_back_the_same(kind: ControlType) -> None:
    batch = build_control(
        kind,
        producer_id=2**40,
        producer_epoch=12,
        coordinator_epoch=34,
        timestamp_ms=1_700_000_000_000,
        base_offset=99,
        leader_epoch=5,
    )
    header = validate(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_offset, header.leader_epoch) == (99, 5)
    assert (header.base_sequence, header.records_count) == (-1, 1)
    assert parse_control(batch) == ControlMarker(kind, 2**40, 12, 34, 1_700_000_000_000)


def test_commit_marker_has_the_key_and_value_that_clients_expect() -> None:
    batch = build_control(
        ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=258, timestamp_ms=0
    )
    (record,) = records_of(batch, limit_bytes=100)
    assert record.key == bytes([0, 0, 0, 1])
    assert record.value == bytes([0, 0, 0, 0, 1, 2])


def test_newer_marker_with_more_fields_is_read() -> None:
    key, value = bytes([0, 1, 0, 0, 9]), bytes([0, 1, 0, 0, 0, 7, 9, 9])
    batch = build([Record(0, 5, key, value)], control=True, transactional=True, producer_id=3)
    assert parse_control(batch) == ControlMarker(ControlType.ABORT, 3, -1, 7, 5)


def test_plain_batch_is_no_marker() -> None:
    with pytest.raises(InvalidBatch, match="not a control batch"):
        parse_control(build([Record(0, 0, bytes(4), bytes(6))]))


@pytest.mark.parametrize(
    "records",
    [
        [Record(0, 0, None, bytes(6))],
        [Record(0, 0, bytes(3), bytes(6))],
        [Record(0, 0, bytes(4), None)],
        [Record(0, 0, bytes(4), bytes(5))],
        [Record(0, 0, bytes([0, 0, 0, 2]), bytes(6))],
        [Record(0, 0, bytes(4), bytes(6)), Record(1, 0, bytes(4), bytes(6))],
    ],
    ids=["no key", "short key", "no value", "short value", "unknown kind", "two records"],
)
def test_malformed_marker_is_refused(records: list[Record]) -> None:
    with pytest.raises(InvalidBatch):
        parse_control(build(records, control=True, codec=Codec.NONE))
