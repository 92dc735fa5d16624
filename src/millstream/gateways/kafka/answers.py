"""Sends the answers of one connection, strictly in the order of its requests.

A request that cannot be answered at once takes a place in line; what is answered behind it waits.

Invariant: the line is empty, or its first place is not filled yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

Parts = Sequence[bytes | memoryview]


class Place:
    """Where the answer to one request, or to several in a row, will go."""

    __slots__ = ("_line", "count", "parts", "request_bytes")

    def __init__(self, line: Answers, count: int, request_bytes: int) -> None:
        self._line = line
        self.count = count
        self.request_bytes = request_bytes
        self.parts: Parts | None = None

    def fill(self, parts: Parts) -> None:
        """Send, or keep until its turn comes."""
        self.parts = parts
        self._line.advance(self)


class Answers:
    """The line of one connection."""

    __slots__ = ("_line", "_write", "held_bytes", "unanswered")

    def __init__(self, write: Callable[[Parts], None]) -> None:
        self._write = write
        self._line: deque[Place] = deque()
        self.unanswered = 0
        """Requests in the line."""
        self.held_bytes = 0
        """Answers that wait for their turn, and requests that wait for what they ask for."""

    def send(self, parts: Parts) -> None:
        """Answer the newest request now, or as soon as those before it are answered."""
        if not self._line:
            self._write(parts)
            return
        self.take_place().fill(parts)

    def take_place(self, count: int = 1, *, request_bytes: int = 0) -> Place:
        """A place for an answer that comes later, to `count` requests.

        `request_bytes` is the size of a request that is kept until then.
        """
        place = Place(self, count, request_bytes)
        self._line.append(place)
        self.unanswered += count
        self.held_bytes += request_bytes
        return place

    def advance(self, filled: Place) -> None:
        """Send what is ready at the head of the line, of which this is the newest part."""
        line = self._line
        self.held_bytes -= filled.request_bytes
        if not line or line[0] is not filled:
            self.held_bytes += _size(filled)
            return
        ready = [*(filled.parts or ())]
        line.popleft()
        self.unanswered -= filled.count
        while line and line[0].parts is not None:
            place = line.popleft()
            self.held_bytes -= _size(place)
            self.unanswered -= place.count
            ready += place.parts or ()
        self._write(ready)


def _size(place: Place) -> int:
    return sum(map(len, place.parts or ()))
