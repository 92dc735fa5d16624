"""How fast a compaction pass reads a log, and how many keys it holds in memory for that.

Half of the records are replaced by newer ones of their keys. Producers send batches of 16 KiB, as
Kafka's clients do, so that nearly every batch has to be rebuilt. The rate is what the pass reads,
divided by the time of `plan.run()`, syncs included.
"""

from __future__ import annotations

import os
import random
import shutil
import time

from millstream.clock import ManualClock
from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.storage.compaction import install, plan_compaction
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.segment_cache import SegmentCache

_BATCH_BYTES = 16 << 10
_BUFFER_BYTES = 128 << 20
_SETTINGS = LogSettings(
    segment_bytes=64 << 20, segment_ms=1000, cleanup_policy=frozenset({"compact"})
)


def measure_compaction(directory: str, total_bytes: int) -> dict[str, float]:
    """MB/s for values of 1 KiB and of 100 bytes, and the entries of the larger key map."""
    large_mb_per_s, large_keys = _measure(os.path.join(directory, "1k"), total_bytes, 1024)
    small_mb_per_s, small_keys = _measure(os.path.join(directory, "100b"), total_bytes, 100)
    return {
        "mb_per_s_1k": large_mb_per_s,
        "mb_per_s_100b": small_mb_per_s,
        "peak_key_map_entries": max(large_keys, small_keys),
    }


def _measure(directory: str, total_bytes: int, value_bytes: int) -> tuple[float, int]:
    clock = ManualClock()
    log = LocalLog(
        LocalFilesystem(),
        directory,
        name="benchmark",
        settings=_SETTINGS,
        clock=clock,
        cache=SegmentCache(4),
    )
    try:
        _fill(log, clock, total_bytes, value_bytes)
        plan = plan_compaction(
            log,
            now_ms=clock.now_ms(),
            buffer_bytes=_BUFFER_BYTES,
            max_decompressed_bytes=_BUFFER_BYTES,
        )
        assert plan is not None
        read_bytes = sum(segment.size for segment in plan.segments)
        begun = time.perf_counter()
        result = plan.run()
        seconds = time.perf_counter() - begun
        install(log, plan, result)
        return read_bytes / seconds / 1e6, result.key_count
    finally:
        log.close()
        shutil.rmtree(directory)


def _fill(log: LocalLog, clock: ManualClock, total_bytes: int, value_bytes: int) -> None:
    """Archived segments in which every second record is the newest of its key."""
    random.seed(1)
    per_batch = _BATCH_BYTES // (value_bytes + 20)
    batches = max(total_bytes // _BATCH_BYTES, 1)
    keys = [b"key-%08d" % (n // 2) for n in range(batches * per_batch)]
    random.shuffle(keys)
    value = os.urandom(value_bytes)
    for number in range(batches):
        some = keys[number * per_batch : (number + 1) * per_batch]
        now_ms = clock.now_ms() + number
        records = [Record(n, now_ms + n // 8, key, value) for n, key in enumerate(some)]
        (outcome,) = log.append([build(records)])
        assert isinstance(outcome, int), outcome
    clock.advance_ms(_SETTINGS.segment_ms)
    log.roll_if_due()
    log.sync()
