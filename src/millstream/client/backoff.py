"""How long to wait before the next attempt to connect: longer each time, and never for all alike.

Each wait is drawn between half of a bound and the bound; the bound doubles up to a limit. So a
broker that comes back is not met by all of its clients in the same moment.

Invariant: no wait is shorter than half of the first bound, or longer than the last.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.identity import new_id

_DRAWN_BYTES = 4


def draw() -> float:
    """A number from 0 up to 1 that nobody can foresee."""
    return int.from_bytes(new_id()[:_DRAWN_BYTES]) / (1 << 8 * _DRAWN_BYTES)


class Backoff:
    """The waits of one client, from one loss of its connection to the next."""

    def __init__(self, *, first_s: float, limit_s: float, draw: Callable[[], float] = draw) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._draw = draw
        self._bound_s = first_s

    def reset(self) -> None:
        """The connection holds: the next wait is a short one."""
        self._bound_s = self._first_s

    def next_s(self) -> float:
        bound_s = self._bound_s
        self._bound_s = min(bound_s * 2, self._limit_s)
        return bound_s * (1 + self._draw()) / 2
