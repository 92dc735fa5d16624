"""When a message that was sent for later is to be delivered.

`millstream-deliver-at` is a date: milliseconds of the wall clock. It is compared with the wall
clock whenever that may have changed, so it follows a clock that is set.

`millstream-deliver-after` is a delay, and takes as long as it says whatever happens to the wall
clock. The broker writes it beside `millstream-deliver-at`, with the time at which its process
started and the time at which the message is due, both by its steady clock. The process that wrote
it waits for that time. A later process knows only the date: it waits until then, but never longer
than the whole delay from its own start.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.records.record import Headers, Record
from millstream.settings.domain import LONG_MAX

DELIVER_AT = "millstream-deliver-at"
"""The header of a message that is for later: milliseconds since the epoch, as text."""
DELIVER_AFTER = "millstream-deliver-after"
"""Delay, start of the broker's process and due time, in milliseconds, as text with spaces."""

LATEST_MS = 1 << 50
_LONGEST_TIME = 20
_DELAY_FIELDS = 3


class DueTime(NamedTuple):
    """When a message is due, and by which clock."""

    at_ms: int
    is_steady: bool
    """By the steady clock; otherwise by the wall clock."""


def delay_headers(delay_ms: int, *, wall_ms: int, steady_ms: int, started_ms: int) -> Headers:
    """Headers of a message that is to be delivered after a delay from now."""
    at_ms = min(wall_ms + delay_ms, LONG_MAX)
    due_ms = min(steady_ms + delay_ms, LONG_MAX)
    return (
        (DELIVER_AT, b"%d" % at_ms),
        (DELIVER_AFTER, b"%d %d %d" % (delay_ms, started_ms, due_ms)),
    )


def due_time(record: Record, *, started_ms: int) -> DueTime | None:
    """When a message is to be delivered by a process that started then; None for at once.

    A malformed time counts as none: no message is held back because its sender made a mistake.
    """
    at_ms: int | None = None
    delay: tuple[int, int, int] | None = None
    for name, value in record.headers:
        if value is None:
            continue
        if name == DELIVER_AT:
            at_ms = _whole(bytes(value))
        elif name == DELIVER_AFTER:
            delay = _delay(bytes(value))
    if at_ms is None:
        return None
    if delay is None:
        return DueTime(at_ms, is_steady=False)
    delay_ms, writer_started_ms, due_ms = delay
    if writer_started_ms != started_ms:
        due_ms = min(at_ms, started_ms + delay_ms)
    return DueTime(min(due_ms, LATEST_MS), is_steady=True)


def _delay(text: bytes) -> tuple[int, int, int] | None:
    numbers = [_whole(part) for part in text.split(b" ")]
    if len(numbers) != _DELAY_FIELDS:
        return None
    delay_ms, started_ms, due_ms = numbers
    if delay_ms is None or started_ms is None or due_ms is None:
        return None
    return delay_ms, started_ms, due_ms


def _whole(text: bytes) -> int | None:
    if not text.isdigit() or len(text) >= _LONGEST_TIME:
        return None
    return min(int(text), LATEST_MS)
