"""How old a segment may become before it is closed."""

from __future__ import annotations

from zlib import crc32

from millstream.settings.log import LogSettings


def segment_max_ms(settings: LogSettings, name: str, offset: int) -> int:
    """From the first append to the active segment of a log that ends at an offset.

    A compacted log closes its segment in time for `max.compaction.lag.ms`, since only closed ones
    are compacted. The jitter depends on the log and the offset alone.
    """
    longest_ms = settings.segment_ms
    if settings.segment_jitter_ms:
        jitter_ms = min(settings.segment_jitter_ms, longest_ms - 1)
        longest_ms -= crc32(f"{name} {offset}".encode()) % (jitter_ms + 1)
    if "compact" in settings.cleanup_policy:
        longest_ms = min(longest_ms, settings.max_compaction_lag_ms)
    return longest_ms
