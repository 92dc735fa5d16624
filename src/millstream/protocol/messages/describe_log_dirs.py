"""DescribeLogDirs (35): the data directories, and what each partition takes up in them.

2: flexible.
3: the answer can fail as a whole; the answer gains error_code.
4: the room on the volume; the answer gains total_bytes, usable_bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Bool, Int16, Int32, Int64, String, Struct, field


class DescribableLogDirTopic(Struct):
    topic: String = field()
    partitions: Sequence[Int32] = field()


class DescribeLogDirsRequest(Struct, api_key=35, versions=(1, 4), flexible=2):
    topics: Sequence[DescribableLogDirTopic] | None = field(nullable=0)


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = field()
    partition_size: Int64 = field()
    offset_lag: Int64 = field()
    is_future_key: Bool = field()


class DescribeLogDirsTopic(Struct):
    name: String = field()
    partitions: Sequence[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Struct):
    error_code: Int16 = field()
    log_dir: String = field()
    topics: Sequence[DescribeLogDirsTopic] = field()
    total_bytes: Int64 = field(since=4, default=-1)
    usable_bytes: Int64 = field(since=4, default=-1)


class DescribeLogDirsResponse(Struct, api_key=35, versions=(1, 4), flexible=2):
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field(since=3)
    results: Sequence[DescribeLogDirsResult] = field()
