"""CreatePartitions (37): give topics more partitions.

1: throttling happens after the answer, not before it.
2: flexible.
3: a new error: throttled.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, String, Struct, field


class CreatePartitionsAssignment(Struct):
    broker_ids: Sequence[Int32] = field()


class CreatePartitionsTopic(Struct):
    name: String = field()
    count: Int32 = field()
    assignments: Sequence[CreatePartitionsAssignment] | None = field(nullable=0)


class CreatePartitionsRequest(Struct, api_key=37, versions=(0, 3), flexible=2):
    topics: Sequence[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = field()
    validate_only: Bool = field()


class CreatePartitionsTopicResult(Struct):
    name: String = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)


class CreatePartitionsResponse(Struct, api_key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: Int32 = field()
    results: Sequence[CreatePartitionsTopicResult] = field()
