"""Tables that viewers follow: of each only what changed is sent, and it is computed once for all.

A channel is a table of rows by name, made anew every now and then while somebody follows it. A
viewer gets all of it first and then the rows that changed and the names of those that are gone:

    event: topics
    data: {"all": true, "set": {"orders": [3, 120, 4096]}, "gone": []}

Invariant: a channel that nobody follows does nothing and holds nothing. What a viewer does not take
is bounded: past that its stream ends, and the browser connects again and gets all of it first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from millstream.errors import MillstreamError
from millstream.gateways.http.problems import problem_of

_log = logging.getLogger(__name__)

_MOST_WAITING = 64

Rows = Mapping[str, Any]


class Source(NamedTuple):
    """Where the rows of a channel come from, and how often they are made."""

    event: str
    make: Callable[[], Awaitable[Rows]]
    interval_s: float


class Viewer:
    """One open page: frames that it has not been sent yet."""

    def __init__(self) -> None:
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING + 1)

    def show(self, frame: bytes) -> None:
        if self._frames.qsize() < _MOST_WAITING:
            self._frames.put_nowait(frame)
        else:
            self.end()

    def end(self) -> None:
        """There is nothing more to come. Safe to call twice."""
        if not self._frames.full():
            self._frames.put_nowait(None)

    async def next(self) -> bytes | None:
        """The next frames, joined; None at the end."""
        frame = await self._frames.get()
        if frame is None:
            return None
        frames = [frame]
        while not self._frames.empty():
            more = self._frames.get_nowait()
            if more is None:
                self.end()
                break
            frames.append(more)
        return b"".join(frames)


class Channel:
    """One table, followed by somebody."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rows: dict[str, Any] | None = None
        self._trouble: dict[str, Any] | None = None
        self._viewers: set[Viewer] = set()
        self._task: asyncio.Task[None] | None = None

    def follow(self, viewer: Viewer) -> None:
        self._viewers.add(viewer)
        if self._rows is not None:
            viewer.show(self._frame({"all": True, "set": self._rows, "gone": []}))
        elif self._trouble is not None:
            viewer.show(self._frame({"problem": self._trouble}))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, viewer: Viewer) -> bool:
        """Whether that was the last one. Safe to call twice."""
        self._viewers.discard(viewer)
        if self._viewers:
            return False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        return True

    async def _run(self) -> None:
        while True:
            try:
                rows = await self._source.make()
            except MillstreamError as error:
                self._tell_trouble(problem_of(error))
            except Exception:  # Outer edge of the channel: others go on.
                _log.exception("the dashboard cannot show %s", self._source.event)
                for viewer in self._viewers:
                    viewer.end()
            else:
                self._tell_rows(rows)
            await asyncio.sleep(self._source.interval_s)

    def _tell_rows(self, rows: Rows) -> None:
        before = self._rows
        self._rows = dict(rows)
        self._trouble = None
        if before is None:
            self._show({"all": True, "set": self._rows, "gone": []})
            return
        changed = {name: row for name, row in rows.items() if before.get(name) != row}
        gone = [name for name in before if name not in rows]
        if changed or gone:
            self._show({"set": changed, "gone": gone})

    def _tell_trouble(self, problem: dict[str, Any]) -> None:
        if problem != self._trouble:
            self._trouble = problem
            self._rows = None
            self._show({"problem": problem})

    def _show(self, told: dict[str, Any]) -> None:
        frame = self._frame(told)
        for viewer in self._viewers:
            viewer.show(frame)

    def _frame(self, told: dict[str, Any]) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (self._source.event.encode(), orjson.dumps(told))


class Channels:
    """All that somebody follows now."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Channel] = {}

    def follow(self, viewer: Viewer, wanted: Iterable[tuple[tuple[str, str], Source]]) -> None:
        for key, source in wanted:
            channel = self._open.get(key)
            if channel is None:
                channel = self._open[key] = Channel(source)
            channel.follow(viewer)

    def leave(self, viewer: Viewer) -> None:
        """Follow nothing any more. Safe to call twice."""
        for key, channel in list(self._open.items()):
            if channel.leave(viewer):
                del self._open[key]
