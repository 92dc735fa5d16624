"""Which requests without records may begin now, so that no client takes the time or memory of all.

What such a request costs is bounded by its size: it is taken apart into one object for every byte
or two, and most become one of the answer. So three things are bounded, in bytes of requests:

- what begins in one turn of the event loop: the rest, of all connections, waits for the next;
- what is at work at once, beyond the small ones: a large request works in slices, and while many of
  them take turns, each holds memory;
- how much work a request does before others have their turn: see `Pace`. A small request is one
  slice, so that it is done when it is begun, unless it waits for the disk.

Invariant: whoever is not admitted stands in line, and is asked again. Whatever was admitted is
`release`d once. A request that is larger than all of the room is admitted when nothing is at work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeVar

SMALL_BYTES: Final = 1024
_TURN_BYTES: Final = 8 * 1024
_ROOM_BYTES: Final = 128 * 1024
_SLICE_ELEMENTS: Final = SMALL_BYTES
_GATHERED: Final = 256
"""Things that are done side by side for one request, such as topics that are created."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Admission:
    """Lets the requests of all connections of a listener in."""

    def __init__(self) -> None:
        self._turn_bytes = _TURN_BYTES
        self._room_bytes = _ROOM_BYTES
        self._will_ask = False
        # In order; nobody stands here twice.
        self._line: dict[Callable[[], None], None] = {}

    @property
    def waiting(self) -> int:
        """How many connections wait to be admitted."""
        return len(self._line)

    def admit(self, size: int, retry: Callable[[], None]) -> bool:
        """Whether a request may begin; if not, `retry` is called when it may be asked for again."""
        if self._turn_bytes <= 0:
            self._line[retry] = None
            return False
        is_alone = self._room_bytes == _ROOM_BYTES
        if size > SMALL_BYTES and size > self._room_bytes and not is_alone:
            self._line[retry] = None
            return False
        self.take(size)
        return True

    def take(self, size: int) -> None:
        """Admit a request, whatever else is at work."""
        if size > SMALL_BYTES:
            self._room_bytes -= size
        self._turn_bytes -= size
        self._ask_soon()

    def release(self, size: int) -> None:
        """An admitted request needs no more memory."""
        if size > SMALL_BYTES:
            self._room_bytes += size
            self._ask_soon()

    def leave(self, retry: Callable[[], None]) -> None:
        """Wait no longer, if ever."""
        self._line.pop(retry, None)

    def _ask_soon(self) -> None:
        if not self._will_ask:
            self._will_ask = True
            asyncio.get_running_loop().call_soon(self._ask)

    def _ask(self) -> None:
        """Another turn of the event loop."""
        self._will_ask = False
        self._turn_bytes = _TURN_BYTES
        line, self._line = self._line, {}
        untried = iter(line)
        while self._turn_bytes > 0 and (retry := next(untried, None)) is not None:
            retry()
        # Who was not asked stays in front of those who came since.
        self._line = dict.fromkeys(untried) | self._line


class Pace:
    """How far one request has come with its elements; after each slice others have their turn."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    async def over(self, items: Iterable[_Item], *, weight: int = 1) -> AsyncIterator[_Item]:
        """The same items, in slices; `weight` tells how many elements each one stands for."""
        for item in items:
            yield item
            self._done += weight
            if self._done >= _SLICE_ELEMENTS:
                self._done = 0
                await asyncio.sleep(0)


async def gather_slices(
    work: Callable[[_Item], Awaitable[_Result]], items: Sequence[_Item]
) -> list[_Result]:
    """Do something with each item, many side by side but not all: the results in order."""
    results: list[_Result] = []
    left = iter(items)
    while some := tuple(islice(left, _GATHERED)):
        results += await asyncio.gather(*map(work, some))
    return results
