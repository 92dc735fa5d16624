"""One thing after the other: what is done for a transactional id waits until its turn comes.

Invariant: what has begun goes on to its end, even if whoever asked for it hangs up. Once closed,
nothing has its turn any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from millstream.broker.transaction_registry import HostedTransaction, TransactionRegistry
from millstream.errors import Conflict, Fenced, InvalidRequest, MillstreamError, Unavailable

_log = logging.getLogger(__name__)

_CLOSING_S = 3.0
_TELLING_S = 0.1
"""Time between two lines about refused requests."""

_T = TypeVar("_T")
Work = Callable[[HostedTransaction], Coroutine[Any, Any, _T]]


class TransactionTurns:
    """Whatever is under way for transactional ids."""

    def __init__(self, registry: TransactionRegistry) -> None:
        self._registry = registry
        self._under_way: set[asyncio.Task[Any]] = set()
        self._next_telling_s = 0.0
        self.is_closed = False

    async def ask(self, hosted: HostedTransaction, work: Work[_T]) -> _T:
        """Do something that somebody waits for. Raises what it raises, and Unavailable."""
        if self.is_closed:
            raise Unavailable
        try:
            return await asyncio.shield(self.begin(self.take(hosted, work)))
        except (Conflict, Fenced, InvalidRequest) as refusal:
            self._tell(hosted, refusal)
            raise

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Let something go on that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._note_end)
        return task

    async def take(self, hosted: HostedTransaction, work: Work[_T]) -> _T:
        """Do something when its turn comes."""
        hosted.users += 1
        try:
            async with hosted.turn:
                if self.is_closed:
                    raise Unavailable
                return await work(hosted)
        finally:
            hosted.users -= 1
            self._registry.release(hosted)

    async def close(self) -> None:
        """Give nobody a turn any more, and return when what has one has ended, or is too slow."""
        self.is_closed = True
        if self._under_way:
            # What takes longer is decided, or it is not: both are the same after the next start.
            await asyncio.wait(self._under_way, timeout=_CLOSING_S)
        for task in self._under_way:
            task.cancel()

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, MillstreamError):
            # A defect: who asked hears of it too, unless they are gone.
            _log.error("a transaction failed", exc_info=failure)

    def _tell(self, hosted: HostedTransaction, refusal: MillstreamError) -> None:
        """Say why somebody was refused: clients show a code, or the wrong words for it."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_telling_s:
            self._next_telling_s = now_s + _TELLING_S
            _log.info(
                "transactional id %(transactional_id).100r is refused: %(error).300s",
                {"transactional_id": hosted.transactional_id, "error": refusal},
            )
