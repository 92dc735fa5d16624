"""AlterConfigs (33): replace all settings of topics, the broker or groups.

No version changed what happens.

A setting that the request leaves out goes back to the broker's own: IncrementalAlterConfigs (44)
is what most clients want.
"""

from __future__ import annotations

from millstream.errors import InvalidRequest
from millstream.gateways.kafka.config_resources import Changes, Target, alter_each
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

API_KEY = 33
VERSIONS = (0, 2)
REQUEST = AlterConfigsRequest


async def handle(request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    outcomes = await alter_each(
        request.resources, context, _changes, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code_of(failure),
                error_message=None if failure is None else str(failure),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, failure in outcomes
        ]
    )


def _changes(target: Target, asked: AlterConfigsResource) -> Changes:
    changes: dict[str, str | None] = dict.fromkeys(target.overrides)
    for config in asked.configs:
        if config.value is None:
            raise InvalidRequest(f"{config.name} has no value: leave it out")
        changes[config.name] = config.value
    return changes
