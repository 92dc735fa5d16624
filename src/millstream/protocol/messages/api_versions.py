"""ApiVersions (18): which APIs, in which versions, and which features the broker has.

1: the answer gains throttle_time_ms.
2: throttling happens after the answer, not before it.
3: the request gains client_software_name, client_software_version; the answer gains
   supported_features, finalized_features_epoch, finalized_features, zk_migration_ready; flexible.
4: supported_features may say that they begin at version 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, field


class ApiVersionsRequest(Struct, api_key=18, versions=(0, 4), flexible=3):
    client_software_name: String = field(since=3)
    client_software_version: String = field(since=3)


class ApiVersion(Struct):
    api_key: Int16 = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


class SupportedFeatureKey(Struct):
    name: String = field()
    min_version: Int16 = field()
    max_version: Int16 = field()


class FinalizedFeatureKey(Struct):
    name: String = field()
    max_version_level: Int16 = field()
    min_version_level: Int16 = field()


class ApiVersionsResponse(Struct, api_key=18, versions=(0, 4), flexible=3):
    error_code: Int16 = field()
    api_keys: Sequence[ApiVersion] = field()
    throttle_time_ms: Int32 = field(since=1)
    supported_features: Sequence[SupportedFeatureKey] = field(since=3, tag=0)
    finalized_features_epoch: Int64 = field(since=3, tag=1, default=-1)
    finalized_features: Sequence[FinalizedFeatureKey] = field(since=3, tag=2)
    zk_migration_ready: Bool = field(since=3, tag=3)
