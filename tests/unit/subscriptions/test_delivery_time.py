"""When messages that were sent for later are due."""

from __future__ import annotations

import pytest

from millstream.records import Record
from millstream.records.record import Headers
from millstream.settings.domain import LONG_MAX
from millstream.subscriptions.delivery_time import (
    DELIVER_AFTER,
    DELIVER_AT,
    LATEST_MS,
    DueTime,
    delay_headers,
    due_time,
)

DAY_MS = 24 * 3600 * 1000
STARTED_MS = 100 * DAY_MS


def due(headers: Headers, started_ms: int = STARTED_MS) -> DueTime | None:
    return due_time(Record(0, 0, None, b"", (("h", b"1"), *headers)), started_ms=started_ms)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"1500", 1500), (b"", None), (b"soon", None), (b"-1", None), (b"1" * 25, None), (None, None)],
)
def test_date_is_read_from_the_header(text: bytes | None, expected: int | None) -> None:
    found = due(((DELIVER_AT, text),))
    assert found == (None if expected is None else DueTime(expected, is_steady=False))


@pytest.mark.parametrize("stepped_ms", [-DAY_MS, 0, DAY_MS])
def test_delay_runs_on_the_steady_clock_of_the_process_that_wrote_it(stepped_ms: int) -> None:
    steady_ms = STARTED_MS + 5000
    headers = delay_headers(
        700, wall_ms=steady_ms + stepped_ms, steady_ms=steady_ms, started_ms=STARTED_MS
    )
    assert headers[0] == (DELIVER_AT, b"%d" % (steady_ms + stepped_ms + 700))
    assert due(headers) == DueTime(steady_ms + 700, is_steady=True)


def test_delay_of_an_earlier_process_ends_at_its_date_and_never_takes_longer_than_it_says() -> None:
    headers = delay_headers(
        700, wall_ms=STARTED_MS, steady_ms=STARTED_MS, started_ms=STARTED_MS - 9
    )
    assert due(headers, STARTED_MS + 300) == DueTime(STARTED_MS + 700, is_steady=True)
    assert due(headers, STARTED_MS + DAY_MS) == DueTime(STARTED_MS + 700, is_steady=True)
    back_ms = STARTED_MS - DAY_MS
    assert due(headers, back_ms) == DueTime(back_ms + 700, is_steady=True)


def test_endless_delay_is_a_time_that_can_be_kept() -> None:
    headers = delay_headers(
        LONG_MAX, wall_ms=STARTED_MS, steady_ms=STARTED_MS, started_ms=STARTED_MS
    )
    assert due(headers) == DueTime(LATEST_MS, is_steady=True)


@pytest.mark.parametrize("text", [b"", b"5", b"5 6", b"5 6 x", b"5 6 7 8", None])
def test_malformed_delay_leaves_the_date(text: bytes | None) -> None:
    headers = ((DELIVER_AT, b"9"), (DELIVER_AFTER, text))
    assert due(headers) == DueTime(9, is_steady=False)
