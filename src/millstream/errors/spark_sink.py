"""What a query that writes to topics can meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest


@dataclass(eq=False, kw_only=True)
class QueryUnnamed(InvalidRequest):
    """A stream is to be written exactly once, and has nothing that it could be known by."""

    def __str__(self) -> str:
        return (
            "to write a stream exactly once, its query needs a name that stays the same when it "
            "is started again: set option name, or queryName, or give the query a "
            "checkpointLocation; or set option delivery=at-least-once"
        )


@dataclass(eq=False, kw_only=True)
class QueryTakenOver(Conflict):
    """Another driver has begun to write under the name of a query."""

    query: str

    def __str__(self) -> str:
        return (
            f"another driver writes as query {self.query!r}, and nothing of this batch was "
            f"written: stop one of the two, or give it another name"
        )


@dataclass(eq=False, kw_only=True)
class QueryStartedOver(Conflict):
    """A query counts its batches anew, and what it brings is not what it wrote before."""

    query: str
    batch: int
    last_batch: int
    written_rows: int | None
    """None where there were too many batches to tell."""

    def __str__(self) -> str:
        rows = "" if self.written_rows is None else f" with {self.written_rows} rows"
        return (
            f"query {self.query!r} has written batches up to {self.last_batch}{rows}, and its "
            f"batch {self.batch} now does not follow them: its checkpoint is lost or an older "
            f"one. Nothing of this batch was written. Give the query its checkpoint back; or give "
            f"it a new name, and a start after the rows that the topics have"
        )


@dataclass(eq=False, kw_only=True)
class TransactionExpired(Conflict):
    """A task's transaction was aborted before its batch was decided."""

    query: str
    batch: int
    task: int
    transactional_id: str
    timeout_ms: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of query {self.query!r}: the transaction "
            f"{self.transactional_id!r} of task {self.task} was aborted before the batch was "
            f"done, and nothing of the batch was written. If it took longer than "
            f"{self.timeout_ms} ms, make batches smaller or raise option transactionTimeout (and "
            f"the broker's transaction.max.timeout.ms); then start the query again"
        )


@dataclass(eq=False, frozen=True, kw_only=True)
class LostPart:
    """What one task wrote, and the coordinator aborted."""

    task: int
    rows: int
    places: Sequence[str]

    def __str__(self) -> str:
        return f"task {self.task} ({self.rows} rows for {', '.join(self.places)})"


@dataclass(eq=False, kw_only=True)
class BatchTorn(Conflict):
    """Part of a batch that was decided is in its topics, and part can not be any more."""

    query: str
    batch: int
    parts: Sequence[LostPart]

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of query {self.query!r} was decided, and no driver came back to "
            f"commit it before the transactions of these timed out: "
            f"{'; '.join(map(str, self.parts))}. The rest of it is in its topics. A stream that is "
            f"started again writes these rows again, if every task has the rows that it had. If "
            f"that was refused, or it was no stream, write these rows by hand; then give a stream "
            f"a new name and a start after this batch"
        )


@dataclass(eq=False, kw_only=True)
class BatchForgotten(Conflict):
    """Nobody knows any more whether a batch that was decided is in its topics."""

    query: str
    batch: int
    parts: Sequence[LostPart]

    def __str__(self) -> str:
        return (
            f"batch {self.batch} of query {self.query!r} was decided, and no driver came back "
            f"before the cluster forgot (transactional.id.expiration.ms) what became of these: "
            f"{'; '.join(map(str, self.parts))}. They may be in their topics or not, and nothing "
            f"was written. See which it is, and write those that are missing by hand; then give "
            f"the query a new name and a start after this batch"
        )
