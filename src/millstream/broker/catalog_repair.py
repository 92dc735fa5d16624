"""What makes a catalog safe again of which records are lost.

Producer ids are never given out twice, whichever records are lost: they continue far above every id
that is known, and above the range of any earlier repair, because they include the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.catalog.catalog import producer_ids_record, replay
from millstream.records import Record, build

_LEAP = 1 << 40
_IDS_PER_MS_BITS = 20


def closing_record(records: Iterable[Record], now_ms: int) -> bytearray:
    """The batch to end a repaired catalog with."""
    ids = [0]
    for record in records:
        key, value = bytes(record.key or b""), record.value
        ids.append(replay([(key, None if value is None else bytes(value))]).next_producer_id)
    key, value = producer_ids_record(max(max(ids) + _LEAP, now_ms << _IDS_PER_MS_BITS))
    return build([Record(0, now_ms, key, value)])
