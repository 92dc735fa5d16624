"""Who is connected, through whichever door: for people who look.

Doors know nothing of each other, so each tells here of its own connections when it is asked.
Nothing is kept: a look costs what there is to be told, and who does not look pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class ConnectionDescription(NamedTuple):
    """What there is to know of a connection."""

    number: str
    """Unlike that of any other connection of its door, for as long as it is open."""
    peer: str
    """The client's HOST:PORT."""
    client: str
    """What the client calls itself."""
    since_ms: int
    last_used_ms: int
    use: str
    """What it is used for, in a few words."""


Describe = Callable[[], Iterable[ConnectionDescription]]


class Connections:
    """The doors that can be asked, by name."""

    def __init__(self) -> None:
        self._doors: dict[str, Describe] = {}

    def add(self, door: str, describe: Describe) -> None:
        """From now on a door can be asked. One of the same name takes its place."""
        self._doors[door] = describe

    def all(self) -> Iterator[tuple[str, ConnectionDescription]]:
        """Each connection, with the name of its door."""
        for door, describe in self._doors.items():
            for each in describe():
                yield door, each
