"""What there is to know of a subscription, for people and for doors."""

from __future__ import annotations

from typing import NamedTuple

from millstream.broker.subscription_host import HostedSubscription
from millstream.subscriptions.subscription import SubscriptionSettings, dead_letter_topic


class SubscriptionDescription(NamedTuple):
    """What there is to know of a subscription."""

    topic: str
    name: str
    settings: SubscriptionSettings
    dead_letter_topic: str
    consumers: list[str]
    backlog: int
    """How many are not acknowledged, at most: those in flight and those for later are part of it"""
    in_flight: int
    delayed: int
    """Those for later that are known of: the log may hold more."""
    waiting: int
    """Those that were refused, and wait to be delivered again."""
    redelivered: int
    """How often messages were delivered again, since the broker started."""
    dead: int
    lost: int
    """How many were deleted from the log before they were acknowledged, at most."""
    receivers: int
    """How many wait for messages."""
    floors: list[int]
    """By partition, the first offset that is not acknowledged."""


def describe(hosted: HostedSubscription) -> SubscriptionDescription:
    """As it is now."""
    backlog = 0
    for queue, partition in zip(hosted.queues, hosted.topic.partitions, strict=False):
        if partition.failure is None:
            queue.lose(partition.log.start_offset)
            progress = queue.progress
            backlog += max(partition.log.end_offset - progress.floor - progress.done_above, 0)
    queues = hosted.queues
    return SubscriptionDescription(
        topic=hosted.topic.name,
        name=hosted.name,
        settings=hosted.settings,
        dead_letter_topic=dead_letter_topic(hosted.topic.name, hosted.settings),
        consumers=list(hosted.consumers.values()),
        backlog=backlog,
        in_flight=hosted.tally.total,
        delayed=sum(queue.later_count for queue in queues),
        waiting=sum(queue.refused_count for queue in queues),
        redelivered=sum(queue.redelivered for queue in queues),
        dead=sum(queue.progress.dead for queue in queues),
        lost=sum(queue.progress.lost for queue in queues),
        receivers=hosted.receivers,
        floors=[queue.progress.floor for queue in queues],
    )
