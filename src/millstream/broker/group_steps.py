"""What is done to a group and its offsets from outside, whatever kind of group it is.

What its own members do is in `groups.migration`, which knows both kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from millstream.broker.group_runner import HostedGroup
from millstream.broker.state_log import TransactionalProducer
from millstream.errors import (
    IllegalGeneration,
    MillstreamError,
    NonEmptyGroup,
    StaleMember,
    SubscribedGroup,
    UnknownGroup,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from millstream.groups import classic_transitions as classic
from millstream.groups import consumer_transitions as consumer
from millstream.groups.classic_description import GroupListing
from millstream.groups.classic_group import ClassicGroup, ClassicState
from millstream.groups.classic_subscription import CONSUMER_PROTOCOL_TYPE
from millstream.groups.classic_subscription import subscribed_topics as classic_topics
from millstream.groups.consumer_group import ConsumerGroup, TopicsView
from millstream.groups.consumer_target import subscribed_topics as consumer_topics
from millstream.groups.consumer_validation import check_commit, check_fetch
from millstream.groups.group_records import GroupTombstone, OffsetCommitted, OffsetTombstone
from millstream.groups.migration import AnyGroup
from millstream.groups.offsets import (
    Committer,
    OffsetToCommit,
    TopicPartition,
    Usage,
    commit_refusal,
    deletion_refusal,
    expired,
    is_nobody,
    tombstones,
    transactional_commit_refusal,
    usage_of,
)
from millstream.groups.outcome import Outcome, Reply, Ticket

Hosted = HostedGroup[AnyGroup]
Result = Outcome[AnyGroup, Any]


def answered(hosted: Hosted, ticket: Ticket, value: object | MillstreamError) -> Result:
    """A reply, and nothing changes."""
    return Outcome(hosted.group, (), (Reply(ticket, value),))


def commit_error(hosted: Hosted, committer: Committer) -> MillstreamError | None:
    """Why somebody may not commit offsets now, if so."""
    group = hosted.group
    if group is None:
        # Nobody coordinates the members of a simple group: it may begin with a commit.
        is_simple = committer.generation < 0
        return None if is_simple else UnknownGroup(hosted.group_id)
    if isinstance(group, ClassicGroup):
        return commit_refusal(group, committer)
    try:
        check_commit(group, committer.member_id, committer.generation)
    except MillstreamError as error:
        return error
    return None


def transactional_commit_error(hosted: Hosted, committer: Committer) -> MillstreamError | None:
    """Why somebody may not commit offsets in a transaction now, if so."""
    group = hosted.group
    if group is None:
        if committer.generation < 0:
            return None
        if hosted.has_offsets:
            return UnknownMember(committer.member_id)
        return IllegalGeneration(generation=committer.generation, current=-1)
    if isinstance(group, ClassicGroup):
        return transactional_commit_refusal(group, committer)
    if is_nobody(committer):
        return None
    try:
        check_commit(group, committer.member_id, committer.generation)
    except StaleMember as error:
        # The only word that producers know for it.
        return IllegalGeneration(generation=committer.generation, current=error.current_epoch)
    except MillstreamError as error:
        return error
    return None


def after_commit(group: AnyGroup | None, member_id: str, now_ms: int) -> AnyGroup | None:
    """A commit is a sign of life of a classic member."""
    if isinstance(group, ClassicGroup):
        return classic.renewed(group, member_id, now_ms)
    return group


def check_offset_fetch(group: AnyGroup | None, member_id: str | None, epoch: int) -> None:
    """Raise why offsets may not be fetched in a member's name, if so."""
    if isinstance(group, ConsumerGroup):
        check_fetch(group, member_id, epoch)


def is_empty(group: AnyGroup | None) -> bool:
    """Whether a group has no members."""
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY
    return group is None or not group.members


def delete(hosted: Hosted, ticket: Ticket) -> Result:
    """Forget a group without members, and its offsets."""
    if hosted.group is None and not hosted.has_offsets:
        return answered(hosted, ticket, UnknownGroup(hosted.group_id))
    if not is_empty(hosted.group):
        return answered(hosted, ticket, NonEmptyGroup(hosted.group_id))
    return Outcome(None, _all_tombstones(hosted), (Reply(ticket, None),))


def delete_offsets(
    hosted: Hosted, ticket: Ticket, wanted: list[TopicPartition], topics: TopicsView
) -> Result:
    """Forget offsets of topics that no member reads; the reply has one result for each."""
    group = hosted.group
    if group is None and not hosted.has_offsets:
        return answered(hosted, ticket, UnknownGroup(hosted.group_id))
    if isinstance(group, ClassicGroup) and (refusal := deletion_refusal(group)) is not None:
        return answered(hosted, ticket, refusal)
    in_use = _topics_in_use(group, topics)
    is_kept = [in_use is None or topic in in_use for topic, _ in wanted]
    gone = {key for key, kept in zip(wanted, is_kept, strict=True) if not kept}
    results = tuple(SubscribedGroup(hosted.group_id) if kept else None for kept in is_kept)
    records = tombstones(hosted.group_id, hosted.partitions(), gone.__contains__)
    return Outcome(group, records, (Reply(ticket, results),))


def forget_topics(hosted: Hosted, is_gone: Callable[[str], bool]) -> Result:
    """Topics are gone, and with them how far the group had come, or would have."""
    records = tombstones(hosted.group_id, hosted.partitions(), lambda key: is_gone(key[0]))
    return Outcome(hosted.group, records)


def set_back(hosted: Hosted, cut_end: Callable[[str, int], int | None]) -> Result:
    """Take back what was committed past the end of a log that a crash has cut.

    Those records were read before they were on disk. Others will take their offsets, and must
    be read too.
    """
    records = []
    for (topic, partition), committed in hosted.offsets.items():
        end_offset = cut_end(topic, partition)
        if end_offset is not None and committed.offset > end_offset:
            cut = committed._replace(offset=end_offset)
            records.append(OffsetCommitted(hosted.group_id, topic, partition, cut))
    return Outcome(hosted.group, tuple(records))


def set_back_pending(
    hosted: Hosted, cut_end: Callable[[str, int], int | None]
) -> Iterator[tuple[TransactionalProducer, Result]]:
    """The same for what transactions would commit: one outcome in each of these."""
    cut: defaultdict[TransactionalProducer, list[OffsetCommitted]] = defaultdict(list)
    for producer_id, (topic, partition), pending in hosted.pending.all():
        end_offset = cut_end(topic, partition)
        if end_offset is not None and pending.committed.offset > end_offset:
            producer = TransactionalProducer(producer_id, pending.producer_epoch)
            committed = pending.committed._replace(offset=end_offset)
            cut[producer].append(OffsetCommitted(hosted.group_id, topic, partition, committed))
    for producer, records in cut.items():
        yield producer, Outcome(hosted.group, tuple(records))


def expire(hosted: Hosted, now_ms: int, retention_ms: int, topics: TopicsView) -> Result:
    """Forget offsets that were not used for long, and the group with the last of them."""
    group = hosted.group
    if isinstance(group, ConsumerGroup):
        usage = Usage(topics=_topics_in_use(group, topics))
    else:
        usage = usage_of(group)
    gone = expired(hosted.offsets, usage, now_ms=now_ms, retention_ms=retention_ms)
    # What a transaction is about to renew is in use.
    gone.difference_update(hosted.pending)
    is_awaited = hosted.pending or (isinstance(group, ClassicGroup) and group.pending)
    if is_empty(group) and not is_awaited and len(gone) == len(hosted.offsets):
        return Outcome(None, _all_tombstones(hosted))
    return Outcome(group, tombstones(hosted.group_id, hosted.offsets, gone.__contains__))


def _topics_in_use(group: AnyGroup | None, topics: TopicsView) -> frozenset[str] | None:
    if group is None:
        return frozenset()
    if isinstance(group, ClassicGroup):
        return classic_topics(group)
    return consumer_topics(group, topics)


def _all_tombstones(hosted: Hosted) -> tuple[Any, ...]:
    group = hosted.group
    records: tuple[Any, ...] = tuple(
        OffsetTombstone(hosted.group_id, *key) for key in hosted.partitions()
    )
    if isinstance(group, ClassicGroup):
        return (*records, GroupTombstone(hosted.group_id))
    if isinstance(group, ConsumerGroup):
        return (*records, *consumer.deleted(group).records)
    return records


def listing(hosted: Hosted) -> GroupListing:
    group = hosted.group
    if isinstance(group, ConsumerGroup):
        state = group.state.value
        return GroupListing(hosted.group_id, CONSUMER_PROTOCOL_TYPE, state, "consumer")
    if group is None:
        return GroupListing(hosted.group_id, "", ClassicState.EMPTY, "classic")
    return GroupListing(hosted.group_id, group.protocol_type, group.state, "classic")


def topic_refusal(item: OffsetToCommit, topics: TopicsView) -> MillstreamError | None:
    facts = topics.get(item.topic)
    if facts is None:
        return UnknownTopic(item.topic)
    if not 0 <= item.partition < facts.partitions:
        return UnknownPartition(item.topic, item.partition, count=facts.partitions)
    return None
