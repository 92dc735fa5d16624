"""Settings of one partition log. A topic may override each of them."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSetting
from millstream.settings.declaration import check, setting
from millstream.settings.domain import (
    INT_MAX,
    LONG_MAX,
    Flag,
    Fraction,
    Names,
    OneOf,
    Only,
    SomeOf,
    Whole,
)

_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How a log is cut into segments, kept, cleaned and flushed."""

    segment_bytes: int = setting(
        "segment.bytes",
        1024**3,
        Whole(1, INT_MAX),
        "A segment that would grow past this size is closed and a new one started.",
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * _DAY_MS,
        Whole(1, LONG_MAX),
        "A segment older than this is closed by the next append.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        Whole(0, LONG_MAX),
        "Each segment is closed up to this much before segment.ms, so that logs differ.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        1024,
        Whole(0, INT_MAX),
        "Bytes of the log between two entries of its index.",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1024**2 + 12,
        Whole(0, INT_MAX),
        "Largest record batch that the log takes, as it is stored.",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        "Whether a record's time is the one its producer gave it, or that of its append.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        Whole(0, LONG_MAX),
        "A record whose producer gave it a time further in the past than this is refused.",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        Whole(0, LONG_MAX),
        "A record whose producer gave it a time further in the future than this is refused.",
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * _DAY_MS,
        Whole(-1, LONG_MAX, "-1 for ever"),
        "Segments whose newest record is older than this are deleted.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        Whole(-1, LONG_MAX, "-1 for no limit"),
        "Oldest segments are deleted while the log stays at least this large without them.",
    )
    retention_hold_groups: frozenset[str] = setting(
        "millstream.retention.hold.groups",
        frozenset(),
        Names("names of consumer groups, with commas between them"),
        "Consumer groups for which retention keeps what they have not committed yet.",
    )
    retention_hold_max_bytes: int = setting(
        "millstream.retention.hold.max.bytes",
        10 * 1024**3,
        Whole(0, LONG_MAX),
        "Most that is kept of one partition for the groups, beyond what retention keeps anyway.",
    )
    retention_hold_max_ms: int = setting(
        "millstream.retention.hold.max.ms",
        7 * _DAY_MS,
        Whole(-1, LONG_MAX, "-1 for as long as the bytes allow"),
        "How far past retention.ms records are kept for the groups; their age, if that has no end.",
    )
    cleanup_policy: frozenset[str] = setting(
        "cleanup.policy",
        frozenset({"delete"}),
        SomeOf(("delete", "compact")),
        "Whether old data is deleted, compacted to the newest value per key, or both.",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        _DAY_MS,
        Whole(0, LONG_MAX),
        "How long compaction keeps a tombstone for readers to see.",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        Fraction(0, 1),
        "Share of the log that must be uncompacted before compaction runs.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        Whole(0, LONG_MAX),
        "A record younger than this is not compacted.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        Whole(1, LONG_MAX),
        "A record older than this is compacted, whatever share of the log is uncompacted.",
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG_MAX,
        Whole(1, LONG_MAX),
        "When this many messages wait for flush.ms, they are synced at once; acks=1 does not wait.",
    )
    flush_ms: int = setting(
        "flush.ms",
        1000,
        Whole(0, LONG_MAX),
        "Data that nobody waits for (acks=1) reaches the disk within this time.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        Whole(0, LONG_MAX),
        "Time between marking a file as deleted and removing it.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        _DAY_MS,
        Whole(1, LONG_MAX),
        "An idempotent producer that is silent for this long is forgotten.",
    )
    producer_ids_max_count: int = setting(
        "millstream.producer.ids.max.count",
        20_000,
        Whole(100, INT_MAX),
        "Most idempotent producers that a partition remembers; the longest silent go first.",
    )

    compression_type: str = setting(
        "compression.type",
        "producer",
        OneOf(("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")),
        "How batches are stored: as their producer compressed them, or compressed anew.",
    )
    preallocate: bool = setting(
        "preallocate",
        default=False,
        domain=Flag(),
        doc="Without effect: segments are extended in large steps, which costs no disk.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        Only(1),
        "There is one copy of the log, and acks=all waits until it is on disk.",
    )
    unclean_leader_election: bool = setting(
        "unclean.leader.election.enable",
        default=False,
        domain=Only(value=False),
        doc="There is no other copy of the log that could take its place.",
    )

    def __post_init__(self) -> None:
        check(self)
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidSetting(
                name="min.compaction.lag.ms",
                value=self.min_compaction_lag_ms,
                expected="no more than max.compaction.lag.ms, "
                f"which is {self.max_compaction_lag_ms}",
            )

    @property
    def codec_name(self) -> str | None:
        """How batches are to be packed; None if as their producer did."""
        return None if self.compression_type == "producer" else self.compression_type

    @property
    def bounds_timestamps(self) -> bool:
        """Whether producers may not give records any time they like."""
        return self.message_timestamp_type == "CreateTime" and (
            self.message_timestamp_before_max_ms != LONG_MAX
            or self.message_timestamp_after_max_ms != LONG_MAX
        )
