"""What is known of a query that writes exactly once: its newest batch, and how far that came.

Pure: a record is a value, and each step of the protocol makes a new one. The package's docstring
tells what the states mean.

Invariant: `written` and `history` are those of all batches up to and with `batch` if it is done,
and up to `previous` if it is decided or torn.
Format: JSON, version 1; the key of the record in the topic is the query's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from millstream.errors import CorruptData
from millstream.errors.spark_sink import LostPart
from millstream.spark.fingerprint import Fingerprint

NO_BATCH = -1
# As many batches as a query may have had, to begin anew without its checkpoint.
HISTORY_BATCHES = 128

_VERSION = 1


class State(StrEnum):
    DONE = "done"
    DECIDED = "decided"
    TORN = "torn"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransaction:
    """What anybody needs to end the transaction of a task."""

    task: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    rows: int
    places: tuple[str, ...]
    """For people: the partitions that it has written to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How far a query without its checkpoint has come in what it has written before."""

    query_id: str
    batch: int
    seen: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The record of one query."""

    name: str
    state: State = State.DONE
    query_id: str = ""
    """Spark's; another one means another checkpoint."""
    batch: int = NO_BATCH
    previous: int = NO_BATCH
    """The batch before, which is the newest one again if a decision is taken back."""
    transactions: tuple[TaskTransaction, ...] = ()
    """Decided: those to commit. Torn: those that were lost. Done: none."""
    prints: Mapping[int, str] = field(default_factory=dict)
    """A fingerprint of what each task of the batch had; kept until it is done."""
    added: Fingerprint | None = None
    """The fingerprint of the batch; kept until it is done."""
    written: Fingerprint | None = field(default_factory=Fingerprint)
    history: tuple[str, ...] = ()
    """What `written` was after each batch. Both are given up when there were too many."""
    replay: Replay | None = None
    is_repair: bool = False
    """Decided: other transactions of the batch are committed already."""

    def decided(
        self,
        *,
        query_id: str,
        batch: int,
        transactions: Sequence[TaskTransaction],
        parts: Mapping[int, Fingerprint],
    ) -> Self:
        """This batch counts from now on."""
        is_repair = self.state is State.TORN and batch == self.batch
        return replace(
            self,
            state=State.DECIDED,
            query_id=query_id or self.query_id,
            batch=batch,
            previous=self.previous if is_repair else self.batch,
            is_repair=is_repair,
            transactions=tuple(transactions),
            prints={task: part.text() for task, part in parts.items()},
            added=Fingerprint.total(parts.values()),
            replay=None,
        )

    def finished(self) -> Self:
        """All transactions are committed."""
        written, history = self.written, self.history
        if written is not None and self.added is not None:
            written = Fingerprint.total([written, self.added])
            history = (*history, written.text())
            if len(history) > HISTORY_BATCHES:
                written, history = None, ()
        return replace(
            self,
            state=State.DONE,
            is_repair=False,
            transactions=(),
            prints={},
            added=None,
            written=written,
            history=history,
        )

    def torn(self, lost: Sequence[TaskTransaction]) -> Self:
        """Some transactions are committed, and these can not be."""
        return replace(self, state=State.TORN, transactions=tuple(lost))

    def taken_back(self) -> Self:
        """None of the transactions could be committed: as if the batch had not been decided."""
        return replace(
            self,
            state=State.DONE,
            batch=self.previous,
            transactions=(),
            prints={},
            added=None,
        )

    def replayed(self, replay: Replay) -> Self:
        """A new run has seen part of what was written; once all of it, it goes on."""
        if self.history and replay.seen.text() == self.history[-1]:
            return replace(self, query_id=replay.query_id, batch=replay.batch, replay=None)
        return replace(self, replay=replay)

    @property
    def lost_parts(self) -> list[LostPart]:
        return [
            LostPart(task=each.task, rows=each.rows, places=each.places)
            for each in self.transactions
        ]

    def to_bytes(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Raises CorruptData."""
        try:
            values: dict[str, Any] = json.loads(data)
            version = values.pop("version")
            if version != _VERSION:
                raise ValueError(f"version {version}, known is {_VERSION}")
            transactions = tuple(
                TaskTransaction(**{**each, "places": tuple(each["places"])})
                for each in values.pop("transactions")
            )
            replay = values.pop("replay")
            return cls(
                **{
                    **values,
                    "state": State(values["state"]),
                    "transactions": transactions,
                    "prints": {int(task): text for task, text in values["prints"].items()},
                    "added": _fingerprint(values["added"]),
                    "written": _fingerprint(values["written"]),
                    "history": tuple(values["history"]),
                    "replay": replay
                    and Replay(**{**replay, "seen": Fingerprint(**replay["seen"])}),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise CorruptData(
                path="millstream.spark.commits", position=0, reason=f"no commit record: {cause}"
            ) from cause


def _fingerprint(values: dict[str, Any] | None) -> Fingerprint | None:
    return None if values is None else Fingerprint(**values)
