"""What can be wrong with a history, and how it is told.

Some kinds imply others, when the same fault shows twice:
- a torn transaction whose commit was acknowledged has lost writes as well;
- a value that is read at an offset where others read another one has inconsistent offsets, and is
  a duplicate too if it was read at its own offset as well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tests.transactions.history import Event


class Kind(StrEnum):
    # An acknowledged write that readers went past, and none has seen.
    LOST_WRITE = "lost write"
    # One value at two offsets.
    DUPLICATE = "duplicate"
    # A value that was read although its transaction was aborted (G1a).
    ABORTED_READ = "aborted read"
    # A value that was read before its transaction was to be committed (G1b).
    INTERMEDIATE_READ = "intermediate read"
    # A value that was read where nobody sent it.
    PHANTOM_READ = "phantom read"
    # A transaction of which a part is there, and a part is not.
    TORN_TRANSACTION = "torn transaction"
    # One offset with two values, or a value that is not where its producer was told.
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    # A consumer that went back by itself: within a poll, or from one to the next.
    INTERNAL_NONMONOTONIC_POLL = "internal nonmonotonic poll"
    NONMONOTONIC_POLL = "nonmonotonic poll"
    # A consumer that went past what others read: within a poll, or from one to the next.
    INTERNAL_POLL_SKIP = "internal poll skip"
    POLL_SKIP = "poll skip"
    # What no member of a group read, although members read what is after it.
    GROUP_SKIP = "group skip"
    # What a producer sent later is earlier in the log: within a transaction, or between two.
    INTERNAL_NONMONOTONIC_SEND = "internal nonmonotonic send"
    NONMONOTONIC_SEND = "nonmonotonic send"
    # A commit that was acknowledged after another had taken over the transactional id.
    ZOMBIE_COMMIT = "zombie commit"
    # A record that a group processed in two transactions, or in none, though it is past it.
    PROCESSED_TWICE = "processed twice"
    NEVER_PROCESSED = "never processed"


class Anomaly(NamedTuple):
    kind: Kind
    detail: str
    events: tuple[Event, ...]

    def __str__(self) -> str:
        shown = "".join(f"\n    {event}" for event in self.events)
        return f"{self.kind}: {self.detail}{shown}"
