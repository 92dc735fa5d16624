"""The offsets that a consumer group has committed, for its members and for who is none."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millstream.client.kafka.brokers import GROUP, Brokers
from millstream.client.kafka.error_codes import check
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place, by_topic
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_NO_OFFSET = -1


def commit(
    brokers: Brokers,
    group: str,
    offsets: Mapping[Place, int],
    patience: Patience,
    *,
    generation: int = -1,
    member_id: str = "",
) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    address = brokers.coordinator(GROUP, group, patience)
    answer = brokers.ask(address, request, OffsetCommitResponse, patience.left_s)
    for topic in answer.topics:
        for told in topic.partitions:
            place = f"{topic.name}/{told.partition_index}"
            check(told.error_code, f"committing an offset of {place} for group {group!r}")


def committed(
    brokers: Brokers, group: str, places: Collection[Place], patience: Patience
) -> dict[Place, int | None]:
    request = OffsetFetchRequest(
        group_id=group,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(places).items()
        ],
        require_stable=True,
    )
    address = brokers.coordinator(GROUP, group, patience)
    answer = brokers.ask(address, request, OffsetFetchResponse, patience.left_s)
    what = f"reading the offsets of group {group!r}"
    check(answer.error_code, what)
    found: dict[Place, int | None] = dict.fromkeys(places)
    for topic in answer.topics:
        for told in topic.partitions:
            check(told.error_code, what)
            if told.committed_offset != _NO_OFFSET:
                found[topic.name, told.partition_index] = told.committed_offset
    return found
