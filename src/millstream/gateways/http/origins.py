"""Where a subscriber begins to read: what it asks for, or what its group has committed.

    "earliest", "latest", an offset, {"timestamp": ms}, or {"positions": {"0": 12, "1": 7}}

An offset that lies before the start of a log is taken: what is missing there is told as skipped.
One past its end is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from millstream.broker.broker import Broker
from millstream.broker.partition import Partition
from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, OffsetOutOfRange
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.pages import EARLIEST, LATEST
from millstream.records.record import MAX_INT64

_DIGITS = 20
_EXPECTED = "earliest, latest, an offset, {'timestamp': ms} or {'positions': {'0': offset}}"


async def positions_of(
    broker: Broker,
    topic: Topic,
    partitions: Collection[int],
    *,
    origin: Any,
    group: str | None = None,
) -> dict[int, int]:
    """The offset to begin with in each partition. Raises InvalidRequest, OffsetOutOfRange."""
    found = {number: position_of(topic.partitions[number], origin) for number in partitions}
    if group:
        wanted = [(topic.name, number) for number in partitions]
        committed = await broker.groups.fetch_offsets(group, wanted)
        for (_, number), each in committed.items():
            found[number] = min(each.offset, _latest(topic.partitions[number]))
    return found


def position_of(partition: Partition, origin: Any) -> int:
    """Raises InvalidRequest, OffsetOutOfRange, StorageFailure."""
    log = partition.log
    if origin == EARLIEST:
        return log.start_offset
    if origin == LATEST:
        return _latest(partition)
    if is_whole(origin):
        if origin > log.end_offset:
            raise OffsetOutOfRange(
                offset=origin, start_offset=log.start_offset, end_offset=log.end_offset
            )
        return int(origin)
    if isinstance(origin, Mapping) and len(origin) == 1:
        if is_whole(origin.get("timestamp")):
            timed = log.offset_for_time(origin["timestamp"])
            return log.end_offset if timed is None else timed.offset
        positions = origin.get("positions")
        if isinstance(positions, Mapping) and all(map(is_whole, positions.values())):
            return position_of(partition, positions.get(str(partition.number), EARLIEST))
    raise InvalidRequest(f"from is {excerpt(origin)}: expected {_EXPECTED}")


def origin_of_text(text: str) -> str | int:
    """What a parameter of a URL asks for. Raises InvalidRequest."""
    if text in {EARLIEST, LATEST}:
        return text
    if text.isascii() and text.isdigit() and len(text) < _DIGITS:
        return int(text)
    raise InvalidRequest(f"from is {excerpt(text)}: expected earliest, latest or an offset")


def is_whole(number: object) -> bool:
    """Whether something is a number from 0 on that fits into 8 bytes."""
    return type(number) is int and 0 <= number <= MAX_INT64


def _latest(partition: Partition) -> int:
    return partition.log.last_stable_offset
