"""Offsets by time, and the two ends of partitions, from the leaders of each."""

from __future__ import annotations

from collections.abc import Collection

from millstream.client.kafka.address import Address
from millstream.client.kafka.brokers import Brokers
from millstream.client.kafka.error_codes import check
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place, by_topic
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
LATEST = -1

_NO_OFFSET = -1
_ANY_REPLICA = -1


def look_up(
    brokers: Brokers, places: Collection[Place], *, at: int, committed: bool, patience: Patience
) -> dict[Place, int]:
    """See `Cluster.offsets`. Raises Unavailable, for which all is to be asked again."""
    found = _ask(brokers, places, at=at, committed=committed, patience=patience)
    later = [place for place, offset in found.items() if offset == _NO_OFFSET]
    if later:
        found |= _ask(brokers, later, at=LATEST, committed=committed, patience=patience)
    return {place: found[place] for place in places}


def _ask(
    brokers: Brokers, places: Collection[Place], *, at: int, committed: bool, patience: Patience
) -> dict[Place, int]:
    by_leader: dict[Address, list[Place]] = {}
    for place in places:
        by_leader.setdefault(brokers.leader(place, patience), []).append(place)
    found = {}
    for address, wanted in by_leader.items():
        request = ListOffsetsRequest(
            replica_id=_ANY_REPLICA,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=at)
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(wanted).items()
            ],
        )
        answer = brokers.ask(address, request, ListOffsetsResponse, patience.left_s)
        for topic in answer.topics:
            for told in topic.partitions:
                place = topic.name, told.partition_index
                check(told.error_code, f"looking up an offset of {place[0]}/{place[1]}")
                found[place] = told.offset
    return found
