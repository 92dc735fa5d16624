"""The seam between the broker and a storage engine: one partition's log.

A log is a sequence of record batches with offsets that only grow. The broker knows logs by this
interface alone; `local`, `memory` and later engines stand behind it and pass one contract suite
(tests/unit/storage/test_partition_log_contract.py).

Invariant: `start_offset <= end_offset`; every offset in between is held by at most one batch;
`synced_offset <= end_offset`, and what lies below it survives a crash.

Threads: every method is for the one thread that owns the log. What blocks is handed out as a
task: its `run` is for any thread, and its result goes back to the owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from millstream.errors import MillstreamError
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.producer_state import ProducerStates


class TimedOffset(NamedTuple):
    """A record's place and its timestamp."""

    offset: int
    timestamp_ms: int


class SyncTask(Protocol):
    """What must reach the disk for everything below `target_offset` to be durable."""

    @property
    def target_offset(self) -> int: ...

    def run(self) -> None:
        """Block until it has. Any thread. Raises OSError when the disk fails."""


class PartitionLog(Protocol):
    """One partition's log, as every engine offers it."""

    @property
    def name(self) -> str:
        """What messages and reports call this log, such as `orders/0`."""

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def synced_offset(self) -> int:
        """Everything below it survives a crash."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest transaction that is under way; else the end offset.

        Never before the start of the log, where the beginning of a transaction was deleted.
        """

    @property
    def producers(self) -> ProducerStates:
        """What is known of those who write to the log, and of their transactions."""

    def append(self, batches: Sequence[bytearray | memoryview]) -> list[int | MillstreamError]:
        """Store whole batches, in order, each in a writable buffer of its own.

        Offsets and leader epoch are patched into the buffers. The answer has one entry per
        batch: its base offset (the original one, when an idempotent producer repeats itself),
        or why this one is not stored: a refusal, DiskFull, or StorageFailure once the log has
        stopped. Nothing is durable yet: see `begin_sync`.

        A batch marked as part of a transaction begins one, if its producer has none under way,
        and a control batch ends it. Who may send which is for the caller to judge.
        """

    def read(self, offset: int, max_bytes: int, *, below: int | None = None) -> memoryview:
        """Whole batches from the one that holds `offset`, or the first one after it.

        At most `max_bytes`, but always at least one batch; empty at the end of the log. May
        stop early, at the end of a segment or before damage. Gives no batch at or past `below`,
        where a batch must begin or the log end. Raises OffsetOutOfRange, or CorruptData when the
        batch asked for is damaged.
        """

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The transactions that aborted and have a batch from one offset up to before another.

        Others may be among them that reach across that range. In the order of their markers.
        """

    @property
    def has_aborted_transactions(self) -> bool:
        """False only if no transaction of the log was ever aborted."""

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record at or after a time."""

    def offset_of_max_timestamp(self) -> TimedOffset | None:
        """The record with the largest timestamp; the earliest one where several share it."""

    def delete_records(self, before_offset: int) -> int:
        """Durably move the start of the log up; returns the start offset.

        Raises OffsetOutOfRange past the last stable offset.
        """

    def truncate(self, end_offset: int) -> None:
        """Durably drop every batch that reaches to or past `end_offset`.

        Raises Conflict while a sync or a compaction of the log is under way.
        """

    def begin_sync(self) -> SyncTask:
        """The work that makes all appended so far durable."""

    def finish_sync(self, task: SyncTask, error: OSError | None) -> None:
        """Take note that a task has run; an error stops the log for good.

        Only when no file could be opened, for there being too many, does all of it wait again.
        """

    def close(self) -> None:
        """Make everything durable and let go of all files. Safe to call twice."""
