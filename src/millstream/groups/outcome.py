"""What a transition of a group gives back to whoever runs it.

The runner appends the records, then takes over the new state, then sends the replies once the
records are durable. If the append fails it keeps the old state, so a group never runs ahead of its
log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from millstream.errors import MillstreamError

GroupT_co = TypeVar("GroupT_co", covariant=True)
RecordT_co = TypeVar("RecordT_co", covariant=True)

Ticket = int
"""Names a request that waits for its reply. The runner makes them up; a group only keeps them."""

NO_TICKET: Ticket = 0
"""Of a command on its way to the runner."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to answer to one request, now. `value` is the reply type of the command answered."""

    ticket: Ticket
    value: object | MillstreamError


@dataclass(frozen=True, slots=True)
class Outcome(Generic[GroupT_co, RecordT_co]):
    """The state from now on (None: the group is gone), records to append, replies to send."""

    group: GroupT_co | None
    records: tuple[RecordT_co, ...] = ()
    replies: tuple[Reply, ...] = ()
