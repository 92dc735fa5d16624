"""Topics: what can be asked about them, and done with them.

Nothing that changes something is repeated when its answer is lost: `AnswerLost` says that it may
have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.client.frames import Frame
from millstream.client.link import Link
from millstream.client.rest import Rest, path_part

Setting = str | int | float | bool
# Where a method is called list, the type needs another name.
Names = list[str]


class PartitionDescription(NamedTuple):
    partition: int
    start_offset: int
    end_offset: int


class TopicDescription(NamedTuple):
    name: str
    partitions: tuple[PartitionDescription, ...]
    settings: dict[str, str]
    """Those that it has of its own."""


class AsyncTopics:
    """Topics of a broker."""

    def __init__(self, link: Link, rest: Rest) -> None:
        self._link = link
        self._rest = rest

    async def list(self) -> Names:
        """Their names, without the broker's own."""
        result = await self._link.ask({"op": "topics"}, repeats=1)
        return [str(name) for name in result["topics"]]

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> TopicDescription:
        """Settings have Kafka's names. Raises AlreadyExists, InvalidName, InvalidSetting."""
        frame: Frame = {"op": "create_topic", "topic": name, "settings": dict(settings or {})}
        if partitions is not None:
            frame["partitions"] = partitions
        return _topic(await self._link.ask(frame))

    async def describe(self, name: str) -> TopicDescription:
        """Raises UnknownTopic."""
        return _topic(await self._link.ask({"op": "describe_topic", "topic": name}, repeats=1))

    async def configure(
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
        change: Frame = {"settings": dict(settings or {})}
        if partitions is not None:
            change["partitions"] = partitions
        await self._rest.ask("PATCH", f"/topics/{path_part(name, 'topic')}", change)
        return await self.describe(name)

    async def delete(self, name: str) -> None:
        """With all its messages. Raises UnknownTopic."""
        await self._link.ask({"op": "delete_topic", "topic": name})


def _topic(result: Frame) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(each["partition"], each["start_offset"], each["end_offset"])
        for each in result["partitions"]
    )
    return TopicDescription(result["name"], partitions, dict(result["settings"]))
