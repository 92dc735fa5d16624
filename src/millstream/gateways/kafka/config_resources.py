"""What has settings that a client can change: topics, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from millstream.broker.topics import Topic
from millstream.errors import InvalidRequest, MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context

Changes = Mapping[str, str | None]
"""Settings by name; None for one that is to be the broker's again."""


class ResourceType(IntEnum):
    """Kinds of things that settings belong to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class Resource(Protocol):
    """A thing as a request names it."""

    resource_type: int
    resource_name: str


ResourceT = TypeVar("ResourceT", bound=Resource)


async def alter_each(
    resources: Sequence[ResourceT],
    context: Context,
    changes_to: Callable[[Topic, ResourceT], Changes],
    *,
    validate_only: bool,
) -> list[tuple[ResourceT, MillstreamError | None]]:
    """Change settings, or only see whether that could be done: each thing, and why it could not."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)

    async def outcome(each: ResourceT) -> tuple[ResourceT, MillstreamError | None]:
        try:
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest("the request names this resource twice")
            await _alter(each, context, changes_to, validate_only=validate_only)
        except MillstreamError as error:
            return each, error
        return each, None

    asked = {(each.resource_type, each.resource_name): each for each in resources}
    return await gather_slices(outcome, list(asked.values()))


async def _alter(
    resource: ResourceT,
    context: Context,
    changes_to: Callable[[Topic, ResourceT], Changes],
    *,
    validate_only: bool,
) -> None:
    """Raises UnknownTopic, InvalidSetting or InvalidRequest."""
    if resource.resource_type != ResourceType.TOPIC:
        raise InvalidRequest("only settings of topics can be changed while the broker runs")
    topics = context.broker.topics
    changes = changes_to(topics.get(resource.resource_name), resource)
    if validate_only:
        topics.check_alter(resource.resource_name, changes)
    else:
        await topics.alter(resource.resource_name, changes)
