"""IncrementalAlterConfigs (44): change some settings, and leave the others as they are.

1: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, field


class AlterableConfig(Struct):
    name: String = field()
    config_operation: Int8 = field()
    value: String | None = field(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Sequence[AlterableConfig] = field()


class IncrementalAlterConfigsRequest(Struct, api_key=44, versions=(0, 1), flexible=1):
    resources: Sequence[AlterConfigsResource] = field()
    validate_only: Bool = field()


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    resource_type: Int8 = field()
    resource_name: String = field()


class IncrementalAlterConfigsResponse(Struct, api_key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: Int32 = field()
    responses: Sequence[AlterConfigsResourceResponse] = field()
