"""Settings of topics as a whole; those of their logs are in `log`."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import TooManyTopics
from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, Flag, Whole

MAX_PARTITIONS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How topics come to be."""

    num_partitions: int = setting(
        "num.partitions",
        1,
        Whole(1, MAX_PARTITIONS),
        "Partitions of a topic whose creator does not say how many.",
    )
    auto_create: bool = setting(
        "auto.create.topics.enable",
        default=True,
        domain=Flag(),
        doc="Whether a topic is created when a client first asks for it.",
    )
    auto_create_max: int = setting(
        "auto.create.topics.max",
        20_000,
        Whole(1, INT_MAX),
        "While there are this many topics, none is created just because a client asks for it.",
    )
    delete_enable: bool = setting(
        "delete.topic.enable",
        default=True,
        domain=Flag(),
        doc="Whether topics can be deleted.",
    )

    def __post_init__(self) -> None:
        check(self)

    def check_room(self, topic: str, *, count: int) -> None:
        """Raises TooManyTopics for one that would be created by itself, where so many are."""
        if count >= self.auto_create_max:
            raise TooManyTopics(topic, self.auto_create_max)
