"""CreateTopics (19): make topics.

3: throttling happens after the answer, not before it.
4: -1 asks for the default of num_partitions and replication_factor.
5: the answer shows what was made; the answer gains topic_config_error_code, num_partitions,
   replication_factor, configs; flexible.
6: a new error: throttled.
7: the answer gains topic_id.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = field()
    broker_ids: Sequence[Int32] = field()


class CreatableTopicConfig(Struct):
    name: String = field()
    value: String | None = field(nullable=0)


class CreatableTopic(Struct):
    name: String = field()
    num_partitions: Int32 = field()
    replication_factor: Int16 = field()
    assignments: Sequence[CreatableReplicaAssignment] = field()
    configs: Sequence[CreatableTopicConfig] = field()


class CreateTopicsRequest(Struct, api_key=19, versions=(2, 7), flexible=5):
    topics: Sequence[CreatableTopic] = field()
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field()


class CreatableTopicConfigs(Struct):
    name: String = field()
    value: String | None = field(nullable=0)
    read_only: Bool = field()
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool = field()


class CreatableTopicResult(Struct):
    name: String = field()
    topic_id: Uuid = field(since=7)
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    topic_config_error_code: Int16 = field(since=5, tag=0)
    num_partitions: Int32 = field(since=5, default=-1)
    replication_factor: Int16 = field(since=5, default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = field(since=5, nullable=5)


class CreateTopicsResponse(Struct, api_key=19, versions=(2, 7), flexible=5):
    throttle_time_ms: Int32 = field()
    topics: Sequence[CreatableTopicResult] = field()
