"""How far consumers have come: the committed offsets of their groups, as every door has them.

A consumer of HTTP is a group of one without members, so that Kafka's tools show and move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.broker.broker import Broker
from millstream.broker.topics import Topic
from millstream.errors import InvalidName, MillstreamError, NonEmptyGroup, UnknownMember
from millstream.groups.group_records import Committed
from millstream.groups.offsets import Committer, OffsetToCommit, TopicPartition

_NOBODY = Committer("", None, -1)
_UNKNOWN_EPOCH = -1
_RENEWALS = 4
"""How often offsets that are in use are written again, in the time for which they are kept."""


async def positions(broker: Broker, group: str, topic: Topic) -> Mapping[int, int]:
    """By partition, the next offset; where nothing was committed, the first that there is."""
    wanted = [(topic.name, each.number) for each in topic.partitions]
    committed = await broker.groups.fetch_offsets(group, wanted)
    await _keep(broker, group, committed)
    found = {}
    for each in topic.partitions:
        if each.failure is not None:
            continue
        known = committed.get((topic.name, each.number))
        start_offset = each.log.start_offset
        found[each.number] = start_offset if known is None else max(known.offset, start_offset)
    return found


async def _keep(broker: Broker, group: str, committed: Mapping[TopicPartition, Committed]) -> None:
    """Whoever reads where a group has come to uses its offsets, which are forgotten otherwise."""
    if not committed:
        return
    old_ms = broker.clock.now_ms() - broker.groups.offsets_retention_ms // _RENEWALS
    old = [
        key
        for key, each in committed.items()
        if each.commit_timestamp_ms <= old_ms and each.expire_timestamp_ms < 0
    ]
    if old:
        await broker.groups.renew(group, old)


async def move(
    broker: Broker, group: str, topic: str, offsets: Mapping[int, int], *, metadata: str = ""
) -> None:
    """Durably set where a group reads on. Raises NonEmptyGroup if it has members to do that."""
    await commit(
        broker,
        group,
        [
            OffsetToCommit(topic, number, offset, _UNKNOWN_EPOCH, metadata)
            for number, offset in offsets.items()
        ],
    )


async def commit(broker: Broker, group: str, offsets: Sequence[OffsetToCommit]) -> None:
    """The same, for several topics. Raises the first thing that is wrong."""
    if not group:
        raise InvalidName(kind="group", name=group, expected="a name that is not empty")
    try:
        results = await broker.groups.commit(group, _NOBODY, offsets)
    except UnknownMember:
        raise NonEmptyGroup(group) from None
    for error in results:
        if isinstance(error, MillstreamError):
            raise error
