"""AlterConfigs (33): replace all settings of a topic or broker.

1: throttling happens after the answer, not before it.
2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, field


class AlterableConfig(Struct):
    name: String = field()
    value: String | None = field(nullable=0)


class AlterConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Sequence[AlterableConfig] = field()


class AlterConfigsRequest(Struct, api_key=33, versions=(0, 2), flexible=2):
    resources: Sequence[AlterConfigsResource] = field()
    validate_only: Bool = field()


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    resource_type: Int8 = field()
    resource_name: String = field()


class AlterConfigsResponse(Struct, api_key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: Int32 = field()
    responses: Sequence[AlterConfigsResourceResponse] = field()
