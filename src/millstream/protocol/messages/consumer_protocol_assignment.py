"""ConsumerProtocolAssignment: what a member of a classic consumer group is to read."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bytes, Int32, String, Struct, field


class TopicPartition(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class ConsumerProtocolAssignment(Struct, versions=(0, 3)):
    assigned_partitions: Sequence[TopicPartition] = field()
    user_data: Bytes | None = field(nullable=0)
