"""ListConfigResources (74): what has settings of its own. Flexible from version 0.

1: resources of all kinds (KIP-1142); before, those of client metrics alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int8, Int16, Int32, String, Struct, field


class ListConfigResourcesRequest(Struct, api_key=74, versions=(0, 1), flexible=0):
    resource_types: Sequence[Int8] = field(since=1)


class ConfigResource(Struct):
    resource_name: String = field()
    resource_type: Int8 = field(since=1, default=16)


class ListConfigResourcesResponse(Struct, api_key=74, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    config_resources: Sequence[ConfigResource] = field()
