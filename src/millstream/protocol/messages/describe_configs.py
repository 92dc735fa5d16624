"""DescribeConfigs (32): the settings of topics and brokers.

2: throttling happens after the answer, not before it.
3: documentation and types; the request gains include_documentation; the answer gains config_type,
   documentation.
4: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, field


class DescribeConfigsResource(Struct):
    resource_type: Int8 = field()
    resource_name: String = field()
    configuration_keys: Sequence[String] | None = field(nullable=0)


class DescribeConfigsRequest(Struct, api_key=32, versions=(1, 4), flexible=4):
    resources: Sequence[DescribeConfigsResource] = field()
    include_synonyms: Bool = field()
    include_documentation: Bool = field(since=3)


class DescribeConfigsSynonym(Struct):
    name: String = field()
    value: String | None = field(nullable=0)
    source: Int8 = field()


class DescribeConfigsResourceResult(Struct):
    name: String = field()
    value: String | None = field(nullable=0)
    read_only: Bool = field()
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool = field()
    synonyms: Sequence[DescribeConfigsSynonym] = field()
    config_type: Int8 = field(since=3)
    documentation: String | None = field(since=3, nullable=3)


class DescribeConfigsResult(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    resource_type: Int8 = field()
    resource_name: String = field()
    configs: Sequence[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(Struct, api_key=32, versions=(1, 4), flexible=4):
    throttle_time_ms: Int32 = field()
    results: Sequence[DescribeConfigsResult] = field()
