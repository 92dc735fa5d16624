"""Gives out producer ids, from blocks that are marked as used in the catalog beforehand.

Invariant: an id is given out once, also across a crash; of a block that was begun the rest is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

PRODUCER_ID_BLOCK = 1000


class ProducerIds:
    """Ids for idempotent producers."""

    def __init__(
        self, allocate: Callable[[int], Awaitable[range]], *, block: int = PRODUCER_ID_BLOCK
    ) -> None:
        """`allocate` durably reserves a number of ids, `block` of them each time."""
        self._allocate = allocate
        self._block = block
        self._ids: Iterator[int] = iter(())
        self._turn = asyncio.Lock()

    async def next(self) -> int:
        """Raises StorageFailure."""
        number = next(self._ids, None)
        if number is not None:
            return number
        async with self._turn:
            # Whoever had the turn before may have brought a block.
            number = next(self._ids, None)
            if number is None:
                self._ids = iter(await self._allocate(self._block))
                number = next(self._ids)
            return number
