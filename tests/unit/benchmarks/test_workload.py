"""The batches that are measured with are what they claim to be."""

from __future__ import annotations

import pytest

from benchmarks.workload import batch_of, batch_of_size, in_one_buffer
from millstream.records import parse_header
from millstream.records.batch import validate_produced


@pytest.mark.parametrize("size_bytes", [3000, 16 << 10, 64 << 10, 1 << 20])
def test_batch_has_exactly_the_size_asked_for(size_bytes: int) -> None:
    batch = batch_of_size(size_bytes)
    assert len(batch) == size_bytes
    validate_produced(batch)


def test_batch_has_the_records_asked_for() -> None:
    header = validate_produced(batch_of(records=10))
    assert header.records_count == 10
    assert not header.has_producer


def test_batch_with_a_sequence_is_of_an_idempotent_producer() -> None:
    header = validate_produced(batch_of(sequence=7))
    assert header.has_producer
    assert header.base_sequence == 7


def test_batches_in_one_buffer_stay_what_they_are() -> None:
    batches = [batch_of(seed=seed) for seed in range(3)]
    views = in_one_buffer(batches)
    assert [bytes(view) for view in views] == [bytes(batch) for batch in batches]
    assert all(parse_header(view).records_count == 1 for view in views)
