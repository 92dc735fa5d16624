"""Topics, groups and queues, administered by programs without an event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.client.dead_letters import DeadLetters, LetterState, Replayed
from millstream.client.frames import Start
from millstream.client.groups import (
    AsyncGroups,
    GroupDescription,
    GroupListings,
    GroupOffset,
    ResetStart,
)
from millstream.client.loop_thread import LoopThread
from millstream.client.messages import Span
from millstream.client.plan import QueueType
from millstream.client.queues import AsyncQueues, QueueDescription, QueueDescriptions
from millstream.client.topics import AsyncTopics, Names, Setting, TopicDescription


class Topics:
    """Topics of a broker."""

    def __init__(self, thread: LoopThread, topics: AsyncTopics) -> None:
        self._thread = thread
        self._topics = topics

    def list(self) -> Names:
        """Their names, without the broker's own."""
        return self._thread.call(self._topics.list())

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> TopicDescription:
        """Settings have Kafka's names. Raises AlreadyExists, InvalidName, InvalidSetting."""
        return self._thread.call(
            self._topics.create(name, partitions=partitions, settings=settings)
        )

    def describe(self, name: str) -> TopicDescription:
        """Raises UnknownTopic."""
        return self._thread.call(self._topics.describe(name))

    def configure(
        self,
        name: str,
        *,
        settings: Mapping[str, Setting | None] | None = None,
        partitions: int | None = None,
    ) -> TopicDescription:
        """Change settings, or give it more partitions; None gives a setting back to the broker.

        All is checked before anything is done. Raises UnknownTopic, InvalidSetting,
        InvalidPartitions.
        """
        return self._thread.call(
            self._topics.configure(name, settings=settings, partitions=partitions)
        )

    def delete(self, name: str) -> None:
        """With all its messages. Raises UnknownTopic."""
        self._thread.call(self._topics.delete(name))


class Groups:
    """Consumer groups of a broker."""

    def __init__(self, thread: LoopThread, groups: AsyncGroups) -> None:
        self._thread = thread
        self._groups = groups

    def list(self) -> GroupListings:
        return self._thread.call(self._groups.list())

    def describe(self, name: str) -> GroupDescription:
        """With how far it has come, and its lag. Raises UnknownGroup."""
        return self._thread.call(self._groups.describe(name))

    def commit(
        self, name: str, topic: str, offsets: Mapping[int, int], *, metadata: str = ""
    ) -> tuple[GroupOffset, ...]:
        """Go on from these offsets, by partition; all of them, or none.

        A group begins with its first commit. Returns how far it has come in all its topics. Raises
        UnknownTopic, OffsetOutOfRange, NonEmptyGroup.
        """
        return self._thread.call(self._groups.commit(name, topic, offsets, metadata=metadata))

    def reset(
        self,
        name: str,
        topic: str,
        start: ResetStart,
        *,
        partitions: Sequence[int] | None = None,
    ) -> tuple[GroupOffset, ...]:
        """Go on from the earliest, the latest, an offset or a time, in all partitions or in some.

        Returns how far it has come in all its topics. Raises UnknownTopic, OffsetOutOfRange,
        NonEmptyGroup.
        """
        return self._thread.call(self._groups.reset(name, topic, start, partitions=partitions))

    def delete(self, name: str) -> None:
        """Forget how far it has come. Raises UnknownGroup, NonEmptyGroup."""
        self._thread.call(self._groups.delete(name))


class Queues:
    """Queues of a broker."""

    def __init__(self, thread: LoopThread, queues: AsyncQueues) -> None:
        self._thread = thread
        self._queues = queues

    def list(self, topic: str | None = None) -> QueueDescriptions:
        """Those of a topic, or all. Raises UnknownTopic."""
        return self._thread.call(self._queues.list(topic))

    def create(
        self,
        topic: str,
        name: str,
        *,
        type: QueueType = "shared",  # noqa: A002  # Pulsar's word
        start: Start = "earliest",
        ack_timeout: Span | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: str | None = None,
        redelivery_min: Span | None = None,
        redelivery_max: Span | None = None,
    ) -> QueueDescription:
        """Create a queue on a topic; one with the same settings may be there already.

        `start` is earliest, latest or an offset. What is left out is as the broker has it.
        Raises Conflict if it has other settings.
        """
        return self._thread.call(
            self._queues.create(
                topic,
                name,
                type=type,
                start=start,
                ack_timeout=ack_timeout,
                max_deliveries=max_deliveries,
                dead_letter_topic=dead_letter_topic,
                redelivery_min=redelivery_min,
                redelivery_max=redelivery_max,
            )
        )

    def describe(self, topic: str, name: str) -> QueueDescription:
        """Raises NotFound."""
        return self._thread.call(self._queues.describe(topic, name))

    def delete(self, topic: str, name: str) -> None:
        """Forget what was acknowledged; the messages stay in the topic. Raises NotFound."""
        self._thread.call(self._queues.delete(topic, name))

    def browse(
        self,
        topic: str,
        name: str,
        *,
        partition: int | None = None,
        offset: int = 0,
        limit: int = 100,
        state: LetterState = "all",
        counts: bool = False,
    ) -> DeadLetters:
        """Look at dead letters, the oldest first. They stay where they are. Raises NotFound.

        Those of a partition from an offset on, or of all: `next_offsets` says where to go on.
        """
        return self._thread.call(
            self._queues.browse(
                topic,
                name,
                partition=partition,
                offset=offset,
                limit=limit,
                state=state,
                counts=counts,
            )
        )

    def replay(
        self,
        topic: str,
        name: str,
        *,
        limit: int = 1000,
        message_ids: Sequence[str] | None = None,
        again: bool = False,
    ) -> Replayed:
        """Send dead letters back to the topic, the oldest first that were not yet, or these.

        Raises Conflict for letters of `message_ids` that were sent back before, unless `again`.
        """
        return self._thread.call(
            self._queues.replay(topic, name, limit=limit, message_ids=message_ids, again=again)
        )

    def purge(self, topic: str) -> int:
        """Delete all messages of a topic, as of one for dead letters; how many. Raises NotFound."""
        return self._thread.call(self._queues.purge(topic))
