"""Room for the bodies of all requests together: who has to wait for it is not read meanwhile.

Invariant: a request has room for all of its body before more than a chunk of that is held, so
requests never wait for each other. One that is larger than all the room goes alone.
"""

from __future__ import annotations

import asyncio
from collections import deque

from millstream.errors import Unavailable


class BodyRoom:
    """So many bytes, given out in the order in which they are asked for."""

    def __init__(self, size_bytes: int) -> None:
        self._whole_bytes = size_bytes
        self.free_bytes = size_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def used_bytes(self) -> int:
        return self._whole_bytes - self.free_bytes

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._waiting)

    async def enter(self, size_bytes: int, *, timeout_s: float) -> None:
        """Return when there is room. Raises Unavailable if that takes too long."""
        if not self._waiting and self._fits(size_bytes):
            self.free_bytes -= size_bytes
            return
        turn = asyncio.get_running_loop().create_future()
        waiting = (size_bytes, turn)
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            self._give_up(waiting)
            raise Unavailable(
                "too many large requests come in at once: http.request.buffered.max.bytes; "
                "try again later"
            ) from None
        except asyncio.CancelledError:
            self._give_up(waiting)
            raise

    def leave(self, size_bytes: int) -> None:
        self.free_bytes += size_bytes
        self._let_in()

    def _give_up(self, waiting: tuple[int, asyncio.Future[None]]) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._let_in()
        else:
            # It was let in at the same moment.
            self.leave(waiting[0])

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            self.free_bytes -= size_bytes
            if not turn.done():
                turn.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return size_bytes <= self.free_bytes or self.free_bytes == self._whole_bytes
