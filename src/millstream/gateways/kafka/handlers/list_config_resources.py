"""ListConfigResources (74): everything whose settings can be asked for.

0 only those of client metrics, of which there are none; 1 of the kinds that are named, or of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.broker.broker import NODE_ID
from millstream.gateways.kafka.config_resources import ResourceType
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

API_KEY = 74
VERSIONS = (0, 1)
REQUEST = ListConfigResourcesRequest

_ALL_KINDS = 1


async def handle(
    request: ListConfigResourcesRequest, context: Context
) -> ListConfigResourcesResponse:
    kinds = set(request.resource_types) if context.version >= _ALL_KINDS else _CLIENT_METRICS
    if not kinds <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, name in _resources(context)
            if not kinds or kind in kinds
        ]
    )


def _resources(context: Context) -> Iterator[tuple[ResourceType, str]]:
    broker = context.broker
    for topic in broker.topics.all():
        yield ResourceType.TOPIC, topic.name
    yield ResourceType.BROKER, str(NODE_ID)
    yield ResourceType.BROKER_LOGGER, str(NODE_ID)
    for group in broker.dynamic.groups:
        yield ResourceType.GROUP, group


_CLIENT_METRICS = {ResourceType.CLIENT_METRICS}
