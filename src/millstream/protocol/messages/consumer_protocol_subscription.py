"""ConsumerProtocolSubscription: what a member of a classic consumer group wants to read.

1: partitions that the member has, for cooperative rebalancing; gains owned_partitions.
2: the generation in which it got them; gains generation_id.
3: where the member is; gains rack_id.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bytes, Int32, String, Struct, field


class TopicPartition(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class ConsumerProtocolSubscription(Struct, versions=(0, 3)):
    topics: Sequence[String] = field()
    user_data: Bytes | None = field(nullable=0)
    owned_partitions: Sequence[TopicPartition] = field(since=1)
    generation_id: Int32 = field(since=2, default=-1)
    rack_id: String | None = field(since=3, nullable=3)
