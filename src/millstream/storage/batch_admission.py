"""Decides which batches of an append are stored, and gives those their offsets.

The per-batch work of the append path: check size, checksum and sequence, patch in the offset. It
does no I/O, and looks at headers only. Cost: benchmarks/append.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import MessageTooLarge, MillstreamError
from millstream.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER_BYTES,
    assign_offset,
    stamp_append_time,
    validate_produced,
)
from millstream.settings.log import LogSettings
from millstream.storage.batch_walk import LEADER_EPOCH
from millstream.storage.producer_state import TRANSACTION_BITS, ProducerStates
from millstream.storage.segment_writer import Placed

Outcome = int | MillstreamError


class Run:
    """Batches that go to one segment in one write."""

    __slots__ = ("base_offset", "base_position", "end_offset", "end_position", "parts", "placed")

    def __init__(self, offset: int, position: int) -> None:
        self.base_offset = offset
        self.end_offset = offset
        self.base_position = position
        self.end_position = position
        self.parts: list[bytearray | memoryview] = []
        self.placed: list[Placed] = []


def admit(
    batches: Sequence[bytearray | memoryview],
    outcomes: list[Outcome],
    producers: ProducerStates,
    run: Run,
    *,
    settings: LogSettings,
    now_ms: int,
) -> None:
    """Judge the batches that have no outcome yet, until one no longer fits in the segment."""
    offset, position = run.end_offset, run.end_position
    segment_bytes, max_message_bytes = settings.segment_bytes, settings.max_message_bytes
    is_stamped = settings.message_timestamp_type == "LogAppendTime"
    for number in range(len(outcomes), len(batches)):
        batch = batches[number]
        size = len(batch)
        try:
            # The broker's own markers must fit everywhere.
            if size > max_message_bytes and not _is_control(batch):
                raise MessageTooLarge(size_bytes=size, limit_bytes=max_message_bytes)
            header = validate_produced(batch)
            known = None
            is_transactional = header.attributes & TRANSACTION_BITS
            if is_transactional:
                known = producers.check_transactional(header, batch)
            elif header.producer_id >= 0:
                known = producers.check(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                )
            if known is not None:
                outcomes.append(known)
                continue
            # Only what is to be stored can be too much for the segment.
            if position and position + size > segment_bytes:
                break
            if is_transactional:
                producers.record_transactional(
                    header, batch, base_offset=offset, timestamp_ms=now_ms
                )
            elif header.producer_id >= 0:
                producers.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_sequence,
                    offset,
                    offset + header.last_offset_delta,
                    now_ms,
                )
        except MillstreamError as refusal:
            # Its traceback would hold the buffer.
            outcomes.append(refusal.with_traceback(None))
            continue
        timestamp_ms = _stamp(batch, now_ms) if is_stamped else header.max_timestamp_ms
        assign_offset(batch, offset, LEADER_EPOCH)
        run.parts.append(batch)
        run.placed.append((offset, position, size, timestamp_ms))
        outcomes.append(offset)
        position += size
        offset += header.last_offset_delta + 1
    run.end_offset, run.end_position = offset, position


def _is_control(batch: bytearray | memoryview) -> bool:
    return len(batch) >= HEADER_BYTES and batch[ATTRIBUTES_AT + 1] & CONTROL_BIT != 0


def fail_run(outcomes: list[Outcome], first: int, run: Run, failure: MillstreamError) -> None:
    """Nothing of a run was stored: so say the outcomes from `first` on that said it was."""
    # Repeats of a batch that was in this very write are not stored either.
    outcomes[first:] = [
        failure if isinstance(o, int) and o >= run.base_offset else o for o in outcomes[first:]
    ]


def _stamp(batch: bytearray | memoryview, now_ms: int) -> int:
    stamp_append_time(batch, now_ms)
    return now_ms
