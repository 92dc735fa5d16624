"""Places in a partition as a person gives them: by name, number or time.

`earliest`, `latest`; an offset, as 1000; so many before the end, as -100; a time, as 2026-07-01,
2026-07-01T12:00:00Z or @1782900000 (seconds or milliseconds since 1970); or how long ago, as 90m.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import typer

from millstream.clock import SystemClock

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster, Place

FORMS = (
    "earliest, latest, an offset (1000), so many before the end (-100), a time "
    "(2026-07-01T12:00:00Z, @1782900000), or how long ago (90m)"
)

_EPOCH_MS_FROM = 100_000_000_000
"""A larger number counts milliseconds: as seconds it would be after the year 5138."""
_LONGEST = 100
_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdw]))+")
_PART = re.compile(r"(\d+)(ms|[smhdw])")


class Moment(NamedTuple):
    """One of: a name, an offset, a count before the end, a time."""

    name: str = ""
    offset: int | None = None
    before_end: int | None = None
    time_ms: int | None = None


def parse_moment(text: str, flag: str) -> Moment:
    """A usage error where it is none."""
    from millstream.settings.domain import LONG_MAX

    word = text.strip()
    if len(word) > _LONGEST:
        # As Python, which turns no number of thousands of digits into one.
        raise typer.BadParameter(f"{text[:20]!r}... for {flag}: give {FORMS}")
    if word in {"earliest", "latest"}:
        return Moment(name=word)
    if word.isascii() and word.isdigit():
        return Moment(offset=int(word))
    if word.startswith("-") and word[1:].isascii() and word[1:].isdigit():
        return Moment(before_end=int(word[1:]))
    time_ms = _time_ms(word)
    if time_ms is None or abs(time_ms) > LONG_MAX:
        raise typer.BadParameter(f"{text!r} for {flag}: give {FORMS}")
    return Moment(time_ms=time_ms)


def offsets_at(cluster: Cluster, places: Iterable[Place], moment: Moment) -> dict[Place, int]:
    """Where that is in each partition, never outside of what it holds."""
    from millstream.client.kafka import EARLIEST, LATEST

    wanted = list(places)
    if moment.time_ms is not None:
        return cluster.offsets(wanted, moment.time_ms)
    starts = cluster.offsets(wanted, EARLIEST)
    if moment.name == "earliest":
        return starts
    ends = cluster.offsets(wanted, LATEST)
    if moment.name == "latest":
        return ends
    if moment.before_end is not None:
        return {place: max(starts[place], ends[place] - moment.before_end) for place in wanted}
    assert moment.offset is not None
    return {place: min(max(moment.offset, starts[place]), ends[place]) for place in wanted}


def time_ms_of(text: str) -> int | None:
    """Milliseconds since 1970 for a time as ISO 8601 has it, in UTC unless it says otherwise."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def duration_ms(text: str) -> int | None:
    """Milliseconds in something like 1h30m."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def _time_ms(word: str) -> int | None:
    if word.startswith("@") and word[1:].isascii() and word[1:].isdigit():
        number = int(word[1:])
        return number if number >= _EPOCH_MS_FROM else number * 1000
    ago_ms = duration_ms(word)
    if ago_ms is not None:
        return SystemClock().now_ms() - ago_ms
    return time_ms_of(word)
