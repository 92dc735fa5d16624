"""How much work each measure does: enough for a figure to trust, or just enough to see it run."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024
_MIB = 1024**2
_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and counts of all measures."""

    rounds: int
    warm_bytes: int
    append_bytes: int
    small_batches: int
    commit_s: float
    read_bytes: int
    read_segment_bytes: int
    many_records: int
    few_records: int
    lookups: int
    reopen_segments: int
    reopen_segment_bytes: int
    scan_bytes: int
    compaction_runs: int
    compaction_bytes: int
    compaction_keys: int
    arrow_records: int
    spark_rounds: int
    spark_rows: int
    spark_sink_rows: int
    spark_batches: int
    topics: int
    syncs: int
    # Of measures that start a server, whose rounds are long.
    server_rounds: int
    produce_bytes: int
    small_requests: int
    round_trips: int
    passes: int
    transactions: int
    transactional_messages: int
    idle_connections: int
    loop_s: float
    peer_s: float
    peer_messages: int
    peer_round_trips: int


FULL = Scale(
    # Many and short: on a machine that others use, some of them will be quiet.
    rounds=15,
    warm_bytes=4 * _GIB,
    # More than a segment, so that closing one and opening the next is part of the figure.
    append_bytes=1152 * _MIB,
    small_batches=192_000,
    commit_s=0.5,
    read_bytes=_GIB,
    read_segment_bytes=256 * _MIB,
    many_records=10_000_000,
    few_records=10_000,
    lookups=20_000,
    reopen_segments=1_000,
    reopen_segment_bytes=256 * _KIB,
    scan_bytes=_GIB,
    compaction_runs=3,
    compaction_bytes=128 * _MIB,
    compaction_keys=1_000_000,
    arrow_records=720_000,
    spark_rounds=3,
    spark_rows=5_000_000,
    spark_sink_rows=2_000_000,
    spark_batches=20,
    topics=1_000,
    syncs=1_000,
    server_rounds=5,
    produce_bytes=400_000_000,
    small_requests=200_000,
    round_trips=3_000,
    passes=100,
    transactions=50,
    transactional_messages=300_000,
    idle_connections=5_000,
    loop_s=3.0,
    peer_s=1.0,
    peer_messages=2_000_000,
    peer_round_trips=500,
)

QUICK = Scale(
    rounds=1,
    warm_bytes=16 * _MIB,
    append_bytes=8 * _MIB,
    small_batches=640,
    commit_s=0.02,
    read_bytes=8 * _MIB,
    read_segment_bytes=2 * _MIB,
    many_records=20_000,
    few_records=1_000,
    lookups=200,
    reopen_segments=10,
    reopen_segment_bytes=16 * _KIB,
    scan_bytes=2 * _MIB,
    compaction_runs=1,
    compaction_bytes=_MIB,
    compaction_keys=2_000,
    arrow_records=20_000,
    spark_rounds=1,
    spark_rows=20_000,
    spark_sink_rows=10_000,
    spark_batches=5,
    topics=2,
    syncs=10,
    server_rounds=1,
    produce_bytes=1_000_000,
    small_requests=200,
    round_trips=10,
    passes=2,
    transactions=2,
    transactional_messages=2_000,
    idle_connections=20,
    loop_s=0.02,
    peer_s=0.02,
    peer_messages=10_000,
    peer_round_trips=5,
)
