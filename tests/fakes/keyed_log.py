"""A log whose records have keys, and the steps that tests of compaction take on it."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.clock import ManualClock
from millstream.records import BatchHeader, Codec, ControlType, Record, build, build_control
from millstream.settings.log import LogSettings
from millstream.storage.compaction import install, plan_compaction
from millstream.storage.compaction_plan import CompactionPlan
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.log_walk import sound_batches
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import LIMIT_BYTES, START_MS, read_all

DELETE_RETENTION_MS = 60_000
SEGMENT_MS = 1000

# Compacts whatever there is, as soon as it is archived.
COMPACTED = LogSettings(
    segment_bytes=10_000,
    segment_ms=SEGMENT_MS,
    index_interval_bytes=100,
    max_message_bytes=5000,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=DELETE_RETENTION_MS,
)

Pair = tuple[bytes | None, bytes | None]


def keyed_batch(
    *pairs: Pair,
    codec: Codec = Codec.NONE,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
) -> bytearray:
    """A batch of records with these keys and values, part of a transaction if it has a producer."""
    times = timestamps_ms or [START_MS] * len(pairs)
    records = [
        Record(number, time_ms, key, value)
        for number, ((key, value), time_ms) in enumerate(zip(pairs, times, strict=True))
    ]
    has_producer = producer_id >= 0
    return build(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if has_producer else -1,
        transactional=has_producer,
    )


def marker_of(producer_id: int, kind: ControlType, *, timestamp_ms: int = START_MS) -> bytearray:
    """What ends a producer's transaction."""
    return build_control(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=timestamp_ms,
    )


class KeyedLog:
    """One log with its clock, its filesystem and its checkpoint."""

    def __init__(
        self,
        directory: str,
        settings: LogSettings = COMPACTED,
        *,
        filesystem: Filesystem | None = None,
        clock: ManualClock | None = None,
        checkpoint: LogCheckpoint | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings
        self.filesystem = filesystem or LocalFilesystem()
        self.clock = clock or ManualClock()
        self.log = self._open(checkpoint)

    def _open(self, checkpoint: LogCheckpoint | None) -> LocalLog:
        return LocalLog(
            self.filesystem,
            self.directory,
            name="users/0",
            settings=self.settings,
            clock=self.clock,
            cache=SegmentCache(4),
            checkpoint=checkpoint,
        )

    def reopen(self, settings: LogSettings | None = None) -> None:
        """Stop cleanly and start again."""
        self.log.close()
        self.settings = settings or self.settings
        self.log = self._open(self.log.checkpoint())

    def reopen_after_kill(self, checkpoint: LogCheckpoint | None = None) -> None:
        """Lose the process, and start again with what the files hold."""
        self.log = self._open(checkpoint)

    def put(self, *pairs: Pair) -> None:
        """Append a batch."""
        self.put_at(START_MS, *pairs)

    def put_at(self, timestamp_ms: int, *pairs: Pair) -> None:
        """Append a batch whose records have this time."""
        append(self.log, keyed_batch(*pairs, timestamps_ms=[timestamp_ms] * len(pairs)))

    def put_in(self, producer_id: int, *pairs: Pair) -> None:
        """Append a batch to the transaction of a producer, which it begins if there is none."""
        append(self.log, keyed_batch(*pairs, producer_id=producer_id))

    def end(self, producer_id: int, kind: ControlType) -> None:
        """End the transaction of a producer."""
        append(self.log, marker_of(producer_id, kind))

    def put_transaction(self, producer_id: int, kind: ControlType, *pairs: Pair) -> None:
        """A whole transaction of one batch."""
        self.put_in(producer_id, *pairs)
        self.end(producer_id, kind)

    def archive(self) -> None:
        """Close the active segment, and have all on disk."""
        self.clock.advance_ms(SEGMENT_MS)
        self.log.roll_if_due()
        self.log.sync()

    def put_segment(self, *pairs: Pair) -> None:
        """Append a batch, and close its segment."""
        self.put(*pairs)
        self.archive()

    def plan(self, *, buffer_bytes: int = 1 << 20) -> CompactionPlan | None:
        return plan_compaction(
            self.log,
            now_ms=self.clock.now_ms(),
            buffer_bytes=buffer_bytes,
            max_decompressed_bytes=LIMIT_BYTES,
        )

    def sure_plan(self, *, buffer_bytes: int = 1 << 20) -> CompactionPlan:
        plan = self.plan(buffer_bytes=buffer_bytes)
        assert plan is not None, "there is nothing to compact"
        return plan

    def compact_once(self, *, buffer_bytes: int = 1 << 20) -> list[str]:
        """One pass; the paths of the files that it leaves to be removed."""
        plan = self.sure_plan(buffer_bytes=buffer_bytes)
        return install(self.log, plan, plan.run())

    def compact(self, *, buffer_bytes: int = 1 << 20) -> None:
        """As many passes as it takes, and the removal of what they replaced."""
        while plan := self.plan(buffer_bytes=buffer_bytes):
            for path in install(self.log, plan, plan.run()):
                self.filesystem.remove(path)

    def records(self) -> list[Record]:
        """All records, whatever became of their transactions; and no markers."""
        markers = {header.base_offset for header in self.headers() if header.is_control}
        return [record for record in read_all(self.log) if record.offset not in markers]

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in sound_batches(self.log, self.log.start_offset)]

    def marker_offsets(self) -> list[int]:
        return [header.base_offset for header in self.headers() if header.is_control]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def pairs(self) -> list[Pair]:
        return [(record.key, record.value) for record in self.records()]

    def newest(self) -> dict[bytes | None, bytes | None]:
        """What a reader who reads everything ends up with."""
        return {key: value for key, value in self.pairs() if value is not None}

    def names(self) -> list[str]:
        return sorted(self.filesystem.sizes(self.directory))
