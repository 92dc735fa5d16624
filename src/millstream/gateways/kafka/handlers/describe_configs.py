"""DescribeConfigs (32): the settings of topics, of the broker and of groups, and who set them.

3 types, and documentation when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.errors import InvalidRequest, MillstreamError
from millstream.gateways.kafka.config_entries import (
    ConfigEntry,
    broker_entries,
    dynamic_entries,
    group_entries,
    topic_entries,
)
from millstream.gateways.kafka.config_resources import ResourceType, check_broker_name
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

API_KEY = 32
VERSIONS = (1, 4)
REQUEST = DescribeConfigsRequest

_SETTINGS = 32
"""About how many settings a topic has: each is an element of the answer."""


async def handle(request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    # Each of them once: to ask again and again for the broker's would have a huge answer.
    asked = {(each.resource_type, each.resource_name): each for each in request.resources}
    return DescribeConfigsResponse(
        results=[
            _describe(resource, request, context)
            async for resource in context.pace.over(asked.values(), weight=_SETTINGS)
        ]
    )


def _describe(
    asked: DescribeConfigsResource, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResult:
    # Null stands for all of them, and so do none: that is what Kafka does.
    keys = set(asked.configuration_keys or ())
    is_broker = asked.resource_type == ResourceType.BROKER
    try:
        configs = [
            _shown(entry, request, read_only=is_broker and entry.setting.needs_restart)
            for entry in _entries(asked, context)
            if not keys or entry.setting.name in keys
        ]
    except MillstreamError as error:
        return DescribeConfigsResult(
            error_code=code_of(error),
            error_message=str(error),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    return DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, configs=configs
    )


def _entries(asked: DescribeConfigsResource, context: Context) -> Iterable[ConfigEntry]:
    """Raises UnknownTopic, or InvalidRequest for what has no settings."""
    if asked.resource_type == ResourceType.TOPIC:
        topic = context.broker.topics.get(asked.resource_name)
        return topic_entries(topic.overrides, context.broker.topics.defaults_of(topic))
    dynamic = context.broker.dynamic
    if asked.resource_type == ResourceType.GROUP:
        # Also of a group that does not exist yet, as in Kafka.
        return group_entries(dynamic.of_group(asked.resource_name), context.broker.settings.groups)
    if asked.resource_type not in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        raise InvalidRequest(f"resources of type {asked.resource_type} have no settings here")
    check_broker_name(asked.resource_name)
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        # Loggers have no levels of their own.
        return ()
    if not asked.resource_name:
        return dynamic_entries(dynamic.of_broker)
    return broker_entries(dynamic.read, dynamic.of_broker)


def _shown(
    entry: ConfigEntry, request: DescribeConfigsRequest, *, read_only: bool
) -> DescribeConfigsResourceResult:
    name = entry.setting.name
    return DescribeConfigsResourceResult(
        name=name,
        value=entry.layers[0].value,
        read_only=read_only,
        config_source=entry.layers[0].source,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=layer.value, source=layer.source)
            for layer in (entry.layers if request.include_synonyms else ())
        ],
        config_type=entry.config_type,
        documentation=entry.setting.doc if request.include_documentation else None,
    )
