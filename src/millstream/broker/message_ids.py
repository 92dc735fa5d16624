"""Ids of messages: text, with the partition and the offset."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.broker.subscription_host import HostedSubscription
from millstream.errors import InvalidMessageId

_LONGEST_ID = 31


def message_id_of(partition: int, offset: int) -> str:
    return f"{partition}:{offset}"


def places_of(hosted: HostedSubscription, message_ids: Iterable[str]) -> dict[int, list[int]]:
    """Partitions, and offsets in each. Raises InvalidMessageId before anything happens."""
    places: dict[int, list[int]] = {}
    for message_id in message_ids:
        number, _, offset = message_id.partition(":")
        if not (
            number.isdigit()
            and offset.isdigit()
            and message_id.isascii()
            and len(message_id) <= _LONGEST_ID
        ):
            raise InvalidMessageId(message_id[:100])
        places.setdefault(int(number), []).append(int(offset))
    for partition, offsets in places.items():
        if partition >= len(hosted.queues):
            raise InvalidMessageId(f"{partition}:{offsets[0]}")
        last = max(offsets)
        if last >= hosted.topic.partitions[partition].log.end_offset:
            raise InvalidMessageId(f"{partition}:{last}")
    return places
