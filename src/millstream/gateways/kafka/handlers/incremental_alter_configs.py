"""IncrementalAlterConfigs (44): change some settings of topics, the broker or groups.

No version changed what happens.
"""

from __future__ import annotations

from enum import IntEnum

from millstream.errors import InvalidRequest, InvalidSetting
from millstream.gateways.kafka.config_resources import Changes, Target, alter_each
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import code_of
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.settings.domain import Names, SomeOf

API_KEY = 44
VERSIONS = (0, 1)
REQUEST = IncrementalAlterConfigsRequest


class Operation(IntEnum):
    """What to do with a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    outcomes = await alter_each(
        request.resources, context, _changes, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
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
    changes: dict[str, str | None] = {}
    for config in asked.configs:
        if config.name in changes:
            raise InvalidRequest(f"{config.name} is changed twice")
        changes[config.name] = _value_after(target, config)
    return changes


def _value_after(target: Target, asked: AlterableConfig) -> str | None:
    if asked.config_operation == Operation.DELETE:
        # Also for a setting that does not exist here, as in Kafka: MirrorMaker 2 deletes every
        # setting that its source leaves at the default.
        return None
    setting = target.setting(asked.name, asked.value)
    if asked.value is None:
        raise InvalidRequest(f"{asked.name} has no value")
    if asked.config_operation == Operation.SET:
        return asked.value
    if asked.config_operation not in set(Operation):
        raise InvalidRequest(f"operation {asked.config_operation} on a setting is unknown")
    if not isinstance(setting.domain, SomeOf | Names):
        raise InvalidSetting(
            name=asked.name, value=asked.value, expected="to be set: it is not a list"
        )
    words = [word for word in target.text(asked.name).split(",") if word]
    changed = [word.strip() for word in asked.value.split(",")]
    if asked.config_operation == Operation.APPEND:
        words += [word for word in changed if word not in words]
    else:
        words = [word for word in words if word not in changed]
    return ",".join(words)
