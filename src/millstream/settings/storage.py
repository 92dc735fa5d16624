"""Settings of the data directory, shared by all logs in it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, Text, Whole

_MIB = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Where data lies, and what memory and threads its upkeep may use."""

    data_dir: str = setting(
        "data.dir",
        "./data",
        Text("a directory"),
        "Directory that holds all data; created when missing.",
        needs_restart=True,
    )
    cached_segments: int = setting(
        "millstream.cached.segments",
        64,
        Whole(1, INT_MAX),
        "Closed segments kept mapped for readers.",
        needs_restart=True,
    )
    flush_threads: int = setting(
        "millstream.flush.threads",
        4,
        Whole(1, 1024),
        "Threads that sync files to the disk.",
        needs_restart=True,
    )
    recovery_threads: int = setting(
        "num.recovery.threads.per.data.dir",
        1,
        Whole(1, 1024),
        "Threads that open logs at the start; more pay where long logs lie on a slow disk.",
        needs_restart=True,
    )
    closing_threads: int = setting(
        "millstream.closing.threads",
        8,
        Whole(1, 1024),
        "Threads that sync and close logs at the end.",
        needs_restart=True,
    )
    checkpoint_ms: int = setting(
        "millstream.checkpoint.ms",
        5000,
        Whole(1, LONG_MAX),
        "Time between two records of what is known to be on disk, which bounds a crash scan.",
    )
    retention_check_ms: int = setting(
        "log.retention.check.interval.ms",
        30_000,
        Whole(1, LONG_MAX),
        "Time between two looks for data to delete or to compact.",
    )
    compaction_buffer_bytes: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 * _MIB,
        Whole(1024, LONG_MAX),
        "Memory for the keys of one compaction pass.",
    )
    max_decompressed_bytes: int = setting(
        "millstream.max.decompressed.bytes",
        128 * _MIB,
        Whole(1, LONG_MAX),
        "Largest size that the records of one batch may unpack to.",
        needs_restart=True,
    )

    def __post_init__(self) -> None:
        check(self)
