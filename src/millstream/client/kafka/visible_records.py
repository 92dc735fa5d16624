"""The records in what was fetched that a reader is to see.

Left out are the markers of transactions, what was aborted, and what lies before the offset that
was asked for. Batches that are older than magic 2 are told as what they are: too old.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.client.kafka.reading import Fetched
from millstream.errors import InvalidBatch
from millstream.records import ControlType, parse_control
from millstream.records.batch import MAGIC, BatchHeader, parse_header

_MAGIC_AT = 16
_LENGTH_PREFIX_BYTES = 12
_LENGTH_AT = 8


def visible_batches(found: Fetched) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Whole batches that hold records for readers. Raises InvalidBatch."""
    records, position = found.records, 0
    upcoming = sorted(found.aborted, key=lambda each: each[1], reverse=True)
    aborting: set[int] = set()
    while position < len(records):
        length = int.from_bytes(records[position + _LENGTH_AT : position + 12], "big")
        end = position + _LENGTH_PREFIX_BYTES + length
        batch = records[position:end]
        position = end
        if batch[_MAGIC_AT] != MAGIC:
            raise InvalidBatch(
                f"magic {batch[_MAGIC_AT]} where only {MAGIC} is supported: "
                "the broker keeps messages of the years before 2017"
            )
        header = parse_header(batch)
        while upcoming and upcoming[-1][1] <= header.base_offset:
            aborting.add(upcoming.pop()[0])
        if header.is_control:
            # Kafka's compaction may keep the batch of a marker and not the marker.
            if header.records_count and parse_control(batch).kind is ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield header, batch
