"""Fetch requests for one partition, and what their answers hold.

Invariant: what is fetched lies in memory of its own, which nothing writes to again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from millstream.client.kafka.fetch_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.client.kafka.places import Place
from millstream.errors import MalformedMessage

_EMPTY = memoryview(b"")
_BASE_AND_LENGTH = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")
_PREFIX_BYTES = 12
_MAGIC_AT = 16
_LAST_DELTA_AT = 23
_SHORTEST_BATCH_BYTES = 27


class Fetched(NamedTuple):
    """Whole batches of one partition as they lie in its log.

    The first may begin before the offset that was asked for.
    """

    records: memoryview
    aborted: Sequence[tuple[int, int]]
    """Producer id and first offset of transactions that were aborted; only if committed."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    next_offset: int
    """What to ask for next."""
    error_code: int = 0


def fetch_request(
    place: Place, offset: int, *, max_bytes: int, max_wait_ms: int, committed: bool
) -> FetchRequest:
    topic, partition = place
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetched(answer: FetchResponse, offset: int) -> Fetched:
    """The one partition of an answer, with its error code. Raises MalformedMessage."""
    # A client that is over its quota is answered for no partition at all, and told to wait.
    if answer.error_code or not answer.responses:
        return Fetched(_EMPTY, (), -1, -1, -1, offset, answer.error_code)
    [topic] = answer.responses
    [told] = topic.partitions
    return fetched_partition(told, offset)


def fetched_partition(told: PartitionData, offset: int) -> Fetched:
    """One partition of an answer, with its error code. Raises MalformedMessage."""
    records = _EMPTY if told.records is None else memoryview(told.records)
    size, next_offset = whole_batches(records, offset)
    return Fetched(
        records[:size],
        [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()],
        told.high_watermark,
        told.last_stable_offset,
        told.log_start_offset,
        next_offset,
        told.error_code,
    )


def whole_batches(records: memoryview, offset: int) -> tuple[int, int]:
    """How many bytes the whole batches take, and the offset behind them.

    A broker may cut the last batch short, but never the first, and it sends none that ends before
    the offset that was asked for. Raises MalformedMessage.
    """
    asked, position, size = offset, 0, len(records)
    while size - position >= _SHORTEST_BATCH_BYTES:
        base_offset, length = _BASE_AND_LENGTH.unpack_from(records, position)
        end = position + _PREFIX_BYTES + length
        if length < _SHORTEST_BATCH_BYTES - _PREFIX_BYTES or end > size:
            break
        # Before magic 2, a batch is one message.
        delta = 0
        if records[position + _MAGIC_AT] >= 2:
            (delta,) = _LAST_DELTA.unpack_from(records, position + _LAST_DELTA_AT)
        offset = base_offset + delta + 1
        position = end
    if size and offset <= asked:
        raise MalformedMessage(f"no whole batch in the {size} bytes at offset {asked}")
    return position, offset
