"""What a task should do with its rows, by what the commit record says of the query.

Pure. The driver reads the record before the tasks of a batch run, and each of them asks here.
"""

from __future__ import annotations

from enum import Enum

from millstream.spark.sink.commit_record import NO_BATCH, CommitRecord, State


class Standing(Enum):
    WRITE = "write"
    """A batch that nobody has written yet."""
    SKIP = "skip"
    """The newest batch, again: Spark did not hear that it was written."""
    REPAIR = "repair"
    """The same, and part of it was lost: those tasks write, all others count."""
    REPLAY = "replay"
    """Rows that may have been written before, with another checkpoint: count them."""
    STALE = "stale"
    """An older batch, which Spark runs only with a checkpoint that is older than the record."""


def standing(record: CommitRecord, *, query_id: str, batch: int | None) -> Standing:
    """`batch` is None for a job that has no number, and an empty `query_id` fits any."""
    if batch is None or record.batch == NO_BATCH:
        return Standing.WRITE
    if query_id and record.query_id and query_id != record.query_id:
        return _of_other_checkpoint(record, query_id, batch)
    if batch > record.batch:
        return Standing.WRITE
    if batch < record.batch:
        return Standing.STALE
    return Standing.REPAIR if record.state is State.TORN else Standing.SKIP


def _of_other_checkpoint(record: CommitRecord, query_id: str, batch: int) -> Standing:
    if record.state is State.TORN:
        return Standing.STALE
    if record.written is not None and record.written.row_count == 0:
        return Standing.WRITE
    replay = record.replay
    if replay is not None and replay.query_id == query_id and batch <= replay.batch:
        return Standing.SKIP if batch == replay.batch else Standing.STALE
    return Standing.REPLAY
