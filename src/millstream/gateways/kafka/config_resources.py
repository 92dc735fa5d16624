"""What has settings that a client can change: topics, the broker, and consumer groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from millstream.broker.broker import NODE_ID, Broker
from millstream.errors import InvalidRequest, InvalidSetting, MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context
from millstream.settings.declaration import Setting
from millstream.settings.dynamic import place_of
from millstream.settings.group_overrides import group_setting
from millstream.settings.overrides import setting_texts, text_of, topic_setting

Changes = Mapping[str, str | None]
"""Settings by name; None for one that is to be the broker's again."""


class ResourceType(IntEnum):
    """Kinds of things that settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """A thing as a request names it."""

    resource_type: int
    resource_name: str


class Target(Protocol):
    """A thing whose settings are to be changed."""

    @property
    def overrides(self) -> Mapping[str, str]:
        """What it sets for itself."""

    def setting(self, name: str, raw: object) -> Setting:
        """The declaration of one of its settings. Raises InvalidSetting."""

    def text(self, name: str) -> str:
        """The value that holds, of a setting that is a list."""

    def check(self, changes: Changes) -> None:
        """Raise what `alter` would."""

    async def alter(self, changes: Changes) -> None:
        """Raises InvalidSetting, InvalidRequest or StorageFailure."""


ResourceT = TypeVar("ResourceT", bound=Resource)


async def alter_each(
    resources: Sequence[ResourceT],
    context: Context,
    changes_to: Callable[[Target, ResourceT], Changes],
    *,
    validate_only: bool,
) -> list[tuple[ResourceT, MillstreamError | None]]:
    """Change settings, or only see whether that could be done: each thing, and why it could not."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)

    async def outcome(each: ResourceT) -> tuple[ResourceT, MillstreamError | None]:
        try:
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest("the request names this resource twice")
            target = _target_of(each, context.broker)
            changes = changes_to(target, each)
            if validate_only:
                target.check(changes)
            else:
                await target.alter(changes)
        except MillstreamError as error:
            return each, error
        return each, None

    asked = {(each.resource_type, each.resource_name): each for each in resources}
    return await gather_slices(outcome, list(asked.values()))


def check_broker_name(name: str) -> None:
    """Raises InvalidRequest. An empty name stands for all brokers, of which there is one."""
    if name not in {str(NODE_ID), ""}:
        raise InvalidRequest(f"there is no broker {name!r}, only {NODE_ID}")


def _target_of(resource: Resource, broker: Broker) -> Target:
    """Raises UnknownTopic or InvalidRequest."""
    if resource.resource_type == ResourceType.TOPIC:
        return _TopicTarget(broker, resource.resource_name)
    if resource.resource_type == ResourceType.GROUP:
        return _GroupTarget(broker, resource.resource_name)
    if resource.resource_type == ResourceType.BROKER:
        check_broker_name(resource.resource_name)
        return _BrokerTarget(broker)
    raise InvalidRequest(
        f"resources of type {resource.resource_type} have no settings that can be changed"
    )


class _TopicTarget:
    def __init__(self, broker: Broker, name: str) -> None:
        self._topics = broker.topics
        self._topic = broker.topics.get(name)

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._topic.overrides

    def setting(self, name: str, raw: object) -> Setting:
        return topic_setting(name, raw)

    def text(self, name: str) -> str:
        return setting_texts(self._topic.settings)[name]

    def check(self, changes: Changes) -> None:
        self._topics.check_alter(self._topic.name, changes)

    async def alter(self, changes: Changes) -> None:
        await self._topics.alter(self._topic.name, changes)


class _BrokerTarget:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._broker.dynamic.of_broker

    def setting(self, name: str, raw: object) -> Setting:
        return place_of(name, raw).setting

    def text(self, name: str) -> str:
        return text_of(place_of(name).value(self._broker.settings))

    def check(self, changes: Changes) -> None:
        self._broker.dynamic.check_broker(_by_our_names(changes))

    async def alter(self, changes: Changes) -> None:
        await self._broker.dynamic.alter_broker(_by_our_names(changes))


class _GroupTarget:
    def __init__(self, broker: Broker, name: str) -> None:
        self._dynamic = broker.dynamic
        self._name = name

    @property
    def overrides(self) -> Mapping[str, str]:
        return self._dynamic.of_group(self._name)

    def setting(self, name: str, raw: object) -> Setting:
        return group_setting(name, raw)

    def text(self, name: str) -> str:
        raise InvalidSetting(name=name, value="", expected="a list, and groups have none")

    def check(self, changes: Changes) -> None:
        self._dynamic.check_group(self._name, changes)

    async def alter(self, changes: Changes) -> None:
        await self._dynamic.alter_group(self._name, changes)


def _by_our_names(changes: Changes) -> Changes:
    found: dict[str, str | None] = {}
    for name, raw in changes.items():
        if raw is None:
            try:
                name = place_of(name).setting.name  # noqa: PLW2901 - the same setting
            except InvalidSetting:
                # There is nothing to take back.
                continue
        else:
            name = place_of(name, raw).setting.name  # noqa: PLW2901 - the same setting
        found[name] = raw
    return found
