"""OffsetDelete (47): forget how far a group has come in some partitions."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = field()


class OffsetDeleteRequestTopic(Struct):
    name: String = field()
    partitions: Sequence[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(Struct, api_key=47, versions=(0, 0)):
    group_id: String = field()
    topics: Sequence[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field()
    error_code: Int16 = field()


class OffsetDeleteResponseTopic(Struct):
    name: String = field()
    partitions: Sequence[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(Struct, api_key=47, versions=(0, 0)):
    error_code: Int16 = field()
    throttle_time_ms: Int32 = field()
    topics: Sequence[OffsetDeleteResponseTopic] = field()
