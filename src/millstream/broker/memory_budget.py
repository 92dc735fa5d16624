"""One budget for everything that clients make the broker hold: `max.memory.bytes`.

Incomplete requests, bodies, WebSocket messages and unread responses are charged to it, per chunk
and never per record. A connection that finds no room waits in line, or its request is refused with
a retriable error. Connections with unread responses are dropped to make room, the one that has
stalled for longest first.

Invariant: `used_bytes` is the sum of what is held by each use, and at most `limit_bytes`.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from millstream.errors import Unavailable

KAFKA_REQUESTS = "kafka_requests"
PYLOGSTREAMS_FRAMES = "pylogstreams_frames"
HTTP_BODIES = "http_bodies"
WEBSOCKET_MESSAGES = "websocket_messages"
UNREAD_ANSWERS = "unread_answers"
USES = (KAFKA_REQUESTS, PYLOGSTREAMS_FRAMES, HTTP_BODIES, WEBSOCKET_MESSAGES, UNREAD_ANSWERS)

_STEP_BYTES = 64 << 10
"""With less than this it is not worth while to let others try again."""
_PART_OF_MACHINE = 8
_LEAST_BYTES = 128 << 20
_MOST_BYTES = 1 << 30
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class Stalling(Protocol):
    """A client's connection, whose client has left answers unread."""

    def give_up_unread(self) -> None:
        """End the connection: others need the memory."""


class MemoryBudget:
    """Lives on the event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.used: Counter[str] = Counter()
        """By use."""
        self.dropped = 0
        """How many connections were ended because others needed what their clients did not read."""
        self.reclaim: list[Callable[[], None]] = []
        """Each gives back what is kept without need."""
        # In order; nobody stands here twice.
        self._line: dict[Callable[[], None], str] = {}
        # The one that has stalled for longest first.
        self._stalled: dict[Stalling, int] = {}

    @property
    def is_tight(self) -> bool:
        """Whether someone waits for memory, so that nobody should keep what it does not need."""
        return bool(self._line)

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes

    def waiting(self, use: str) -> int:
        """How many wait for memory."""
        return sum(1 for each in self._line.values() if each == use)

    def allow_for(self, largest_bytes: int) -> None:
        """A single client may need so much, and is never to take more than half of all."""
        self.limit_bytes = max(self.limit_bytes, 2 * largest_bytes)

    def take(self, use: str, size_bytes: int) -> bool:
        """Whether there is room for so much; then it is taken. Who fits in need not wait in line:
        a large request must not hold up the small ones.
        """
        if size_bytes > self.free_bytes:
            for each in self.reclaim:
                each()
            if size_bytes > self.free_bytes:
                return False
        self.used_bytes += size_bytes
        self.used[use] += size_bytes
        return True

    def give_back(self, use: str, size_bytes: int) -> None:
        """Those in line try again, as long as there is something to be had."""
        self.release(use, size_bytes)
        line, self._line = self._line, {}
        untried = iter(line.items())
        while self.free_bytes >= _STEP_BYTES and (found := next(untried, None)) is not None:
            found[0]()
        self._line.update(dict(untried))

    def release(self, use: str, size_bytes: int) -> None:
        """As `give_back`, by who takes it at once for somebody else."""
        self.used_bytes -= size_bytes
        self.used[use] -= size_bytes

    def wait(self, use: str, retry: Callable[[], None]) -> None:
        """Have something called when memory was given back."""
        self._line[retry] = use

    def leave(self, retry: Callable[[], None]) -> None:
        """Wait no longer, if ever."""
        self._line.pop(retry, None)

    async def reserve(self, use: str, size_bytes: int, *, timeout_s: float) -> None:
        """Return when there is room. Raises Unavailable if that takes too long."""
        if self.take(use, size_bytes):
            return
        turn = asyncio.get_running_loop().create_future()

        def retry() -> None:
            if self.take(use, size_bytes):
                turn.set_result(None)
            else:
                self.wait(use, retry)

        self.wait(use, retry)
        try:
            await asyncio.wait([turn], timeout=timeout_s)
        except asyncio.CancelledError:
            if turn.done():
                self.give_back(use, size_bytes)
            raise
        finally:
            self.leave(retry)
        if not turn.done():
            raise Unavailable(
                "memory for requests is short, as max.memory.bytes allows "
                f"{self.limit_bytes} bytes: try again later"
            )

    # Answers that are not read

    def stall(self, client: Stalling, size_bytes: int) -> None:
        """A client has left so much unread. Where there is no room for it, others give way."""
        self.resume(client)
        while not self.take(UNREAD_ANSWERS, size_bytes):
            if not self._stalled:
                self.dropped += 1
                client.give_up_unread()
                return
            oldest = next(iter(self._stalled))
            self.release(UNREAD_ANSWERS, self._stalled.pop(oldest))
            self.dropped += 1
            oldest.give_up_unread()
        self._stalled[client] = size_bytes

    def resume(self, client: Stalling) -> None:
        """A client has taken its answers, or is gone. Safe to call twice."""
        size_bytes = self._stalled.pop(client, 0)
        if size_bytes:
            self.give_back(UNREAD_ANSWERS, size_bytes)


def budget_bytes(setting_bytes: int) -> int:
    """What a setting stands for, of which 0 is a part of what the machine has."""
    if setting_bytes:
        return setting_bytes
    return min(max(_machine_bytes() // _PART_OF_MACHINE, _LEAST_BYTES), _MOST_BYTES)


def _machine_bytes() -> int:
    """The memory of the machine, or of the container around this process."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found
