"""ConsumerGroupDescribe (69): the state and the members of consumer groups (KIP-848).

1: the kind of each member; the answer gains member_type.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class ConsumerGroupDescribeRequest(Struct, api_key=69, versions=(0, 1), flexible=0):
    group_ids: Sequence[String] = field()
    include_authorized_operations: Bool = field()


class TopicPartitions(Struct):
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: Sequence[Int32] = field()


class Assignment(Struct):
    topic_partitions: Sequence[TopicPartitions] = field()


class Member(Struct):
    member_id: String = field()
    instance_id: String | None = field(nullable=0)
    rack_id: String | None = field(nullable=0)
    member_epoch: Int32 = field()
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: Sequence[String] = field()
    subscribed_topic_regex: String | None = field(nullable=0)
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: Int8 = field(since=1, default=-1)


class DescribedGroup(Struct):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    group_id: String = field()
    group_state: String = field()
    group_epoch: Int32 = field()
    assignment_epoch: Int32 = field()
    assignor_name: String = field()
    members: Sequence[Member] = field()
    authorized_operations: Int32 = field(default=-(2**31))


class ConsumerGroupDescribeResponse(Struct, api_key=69, versions=(0, 1), flexible=0):
    throttle_time_ms: Int32 = field()
    groups: Sequence[DescribedGroup] = field()
