"""Topics of a cluster: what they are, how they are set, and changing both.

What a broker refuses is an error at once. Nothing here is kept: every call asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from millstream.client.kafka.address import Address
from millstream.client.kafka.brokers import Brokers, check_topic
from millstream.client.kafka.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, check
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.client.kafka.places import Place, by_topic
from millstream.errors import AnswerLost, UnknownTopic
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC = 2
_SET, _DELETE = 0, 1
_ORIGINS = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "broker file",
    5: "default",
    6: "broker logger",
}


class PartitionListing(NamedTuple):
    """A partition, who leads it, and who has it."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicListing(NamedTuple):
    name: str
    is_internal: bool
    partitions: tuple[PartitionListing, ...]


class TopicSetting(NamedTuple):
    """What a setting is now, and who set it."""

    name: str
    value: str | None
    origin: str
    """`topic`, `broker file`, `default` and so on."""


class Administration:
    """What can be asked about topics, and done to them."""

    def __init__(self, brokers: Brokers, persistence: Persistence) -> None:
        self._brokers = brokers
        self._persistence = persistence

    def check_reachable(self) -> None:
        """Ask once whether anybody is there. Raises Unavailable at once."""
        self._brokers.everyone(self._persistence.patience())

    def addresses(self) -> list[Address]:
        """Of all brokers."""
        return self._persistence.run(self._brokers.everyone)

    def topics(self, names: Iterable[str] | None = None) -> list[TopicListing]:
        """Topics by name; all, with the internal ones, if none are named. Raises UnknownTopic."""
        wanted = None if names is None else list(names)

        def attempt(patience: Patience) -> list[TopicListing]:
            found = []
            for told in self._brokers.topics(wanted, patience):
                if wanted is None and told.error_code:
                    continue
                check_topic(told)
                partitions = (
                    PartitionListing(
                        each.partition_index,
                        each.leader_id,
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                    )
                    for each in told.partitions
                )
                name = told.name or ""
                found.append(TopicListing(name, told.is_internal, tuple(sorted(partitions))))
            return sorted(found)

        return self._persistence.run(attempt)

    def settings(self, topic: str) -> list[TopicSetting]:
        """All settings of a topic. Raises UnknownTopic."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])

        def attempt(patience: Patience) -> list[TopicSetting]:
            [told] = self._brokers.ask_any(request, DescribeConfigsResponse, patience).results
            _check(told.error_code, topic, "reading the settings of", told.error_message)
            settings = (
                TopicSetting(
                    each.name,
                    None if each.is_sensitive else each.value,
                    _ORIGINS.get(each.config_source, "unknown"),
                )
                for each in told.configs
            )
            return sorted(settings)

        return self._persistence.run(attempt)

    def alter_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Change some settings; None gives one back to the broker. Raises UnknownTopic."""
        configs = [
            AlterableConfig(
                name=name, config_operation=_DELETE if value is None else _SET, value=value
            )
            for name, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])

        def attempt(patience: Patience) -> None:
            answer = self._brokers.ask_any(request, IncrementalAlterConfigsResponse, patience)
            [told] = answer.responses
            _check(told.error_code, topic, "changing the settings of", told.error_message)

        self._persistence.run(attempt)

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have more partitions: `count` in all. Raises UnknownTopic."""
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        may_be_done = False

        def attempt(patience: Patience) -> None:
            nonlocal may_be_done
            if may_be_done:
                [listing] = self.topics([topic])
                if len(listing.partitions) == count:
                    return
            request = CreatePartitionsRequest(
                topics=[wanted], timeout_ms=round(patience.left_s * 1000)
            )
            address = self._brokers.controller(patience)
            try:
                answer = self._brokers.ask(
                    address, request, CreatePartitionsResponse, patience.left_s
                )
            except AnswerLost:
                may_be_done = True
                raise
            [told] = answer.results
            what = f"giving {count} partitions to"
            _check(told.error_code, topic, what, told.error_message)

        self._persistence.run(attempt)
        self._brokers.forget()

    def delete_topic(self, topic: str) -> None:
        """Raises UnknownTopic."""
        may_be_done = False

        def attempt(patience: Patience) -> None:
            nonlocal may_be_done
            request = DeleteTopicsRequest(
                topic_names=[topic], timeout_ms=round(patience.left_s * 1000)
            )
            address = self._brokers.controller(patience)
            try:
                answer = self._brokers.ask(address, request, DeleteTopicsResponse, patience.left_s)
            except AnswerLost:
                may_be_done = True
                raise
            [told] = answer.responses
            if told.error_code == UNKNOWN_TOPIC_OR_PARTITION and may_be_done:
                return
            _check(told.error_code, topic, "deleting", told.error_message)

        self._persistence.run(attempt)
        self._brokers.forget()

    def sizes(self, places: Collection[Place]) -> dict[Place, int]:
        """How many bytes partitions take, on the broker that has most of each."""
        wanted = [
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(places).items()
        ]
        request = DescribeLogDirsRequest(topics=wanted)

        def attempt(patience: Patience) -> dict[Place, int]:
            found: dict[Place, int] = {}
            for address in self._brokers.everyone(patience):
                answer = self._brokers.ask(
                    address, request, DescribeLogDirsResponse, patience.left_s
                )
                check(answer.error_code, "asking how large partitions are")
                for directory in answer.results:
                    for topic in directory.topics:
                        for each in topic.partitions:
                            place = topic.name, each.partition_index
                            found[place] = max(found.get(place, 0), each.partition_size)
            return found

        return self._persistence.run(attempt)


def _check(code: int, topic: str, what: str, detail: str | None) -> None:
    if code == UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(topic)
    if code != NONE:
        check(code, f"{what} topic {topic!r}", detail)
