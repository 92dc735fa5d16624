"""A short fixed course of transactions; the power fails at one chosen operation of the disk.

It has every step that a transaction can take: to begin, in old ways and new, to commit, to abort,
to be fenced and to time out. After the crash its clients go on, or are replaced by others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import CrashMoment
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SimulatedBroker
from tests.simulation.transaction_clients import Client
from tests.simulation.transaction_schedule import go_on, rest
from tests.simulation.transaction_world import World

_TIMEOUT_MS = 5_000
_MOST_REPEATS = 20
_A0, _A1, _B0 = ("a", 0), ("a", 1), ("b", 0)
_KINDS = {"new": ("x", True), "old": ("y", False), "rival": ("x", False)}
"""The clients, and what they are: a transactional id, and whether they take new epochs."""

Step = Callable[[], Awaitable[None]]


class Script:
    """Plays the course once."""

    def __init__(
        self,
        *,
        is_replaced: bool = False,
        seed: int = 0,
        slow_log: str = "",
        broker: type[SimulatedBroker] = SimulatedBroker,
    ) -> None:
        """The seed decides in which order syncs end; those of `slow_log` end last."""
        self._world = World(seed, is_eventful=False, broker=broker)
        self._world.slow_log = slow_log
        self._is_replaced = is_replaced
        self._clients = {kind: self._client(kind) for kind in _KINDS}
        self._next = 0
        self._steps: tuple[Step, ...] = (
            self._first_records,
            self._offsets,
            lambda: self._both(self._end("new", is_commit=True), self._end("old", is_commit=True)),
            self._more_records,
            lambda: self._both(self._end("new", is_commit=False), self._write("old", _A0)),
            lambda: self._write("new", _A0, _A1, _B0),
            lambda: self._end("new", is_commit=True),
            self._take_over,
            lambda: self._both(self._end("old", is_commit=True), self._commit_offset("rival")),
            lambda: self._end("rival", is_commit=True),
            self._be_slow,
        )

    def operations(self) -> list[str]:
        """What the disk does meanwhile, when nothing fails."""
        if not self._world.live(self._play):
            raise Violation("crashed when none was asked for")
        return self._world.disk.operations

    def crash_at(self, operation: int, moment: CrashMoment, mode: CrashMode) -> None:
        """Raises Violation."""
        world = self._world
        world.crash_soon(operation, moment)
        if world.live(self._play):
            raise Violation(f"no crash at operation {operation}")
        world.power_on(mode)
        if self._is_replaced:
            self._clients = {kind: self._client(kind) for kind in _KINDS}
        if not world.live(self._play_on):
            raise Violation("crashed when none was asked for")

    async def _play(self) -> None:
        while self._next < len(self._steps):
            step = self._steps[self._next]
            self._next += 1
            await step()
            self._world.checker.look()

    async def _play_on(self) -> None:
        await self._play()
        await rest(self._world)
        await go_on(self._world, ("x", "y"))

    # Steps

    async def _first_records(self) -> None:
        await self._both(self._write("new", _A0, _A1), self._write("old", _A0, _B0))

    async def _offsets(self) -> None:
        await self._both(self._commit_offset("new"), self._commit_offset("old"))

    async def _more_records(self) -> None:
        await self._both(self._write("new", _B0), self._write("old", _A1))

    async def _take_over(self) -> None:
        """The one that is fenced notices when it commits."""
        await self._write("new", _A0)
        await self._write("rival", _B0)
        fenced = self._clients["new"]
        if fenced.attempt is not None and not fenced.unanswered:
            await fenced.end(is_commit=True)

    async def _be_slow(self) -> None:
        await self._write("old", _A0)
        await asyncio.sleep(_TIMEOUT_MS / 1000 + 1)
        await self._end("old", is_commit=True)

    # How they are done

    async def _both(self, *work: Awaitable[None]) -> None:
        await asyncio.gather(*work)

    async def _write(self, kind: str, *places: tuple[str, int]) -> None:
        client = await self._ready(kind)
        missing = [place for place in places if not client.has_added(place)]
        if missing:
            await client.add(*missing)
        if not client.must_begin_anew:
            await asyncio.gather(*map(client.write, places))

    async def _commit_offset(self, kind: str) -> None:
        client = await self._ready(kind)
        if not client.has_added_offsets:
            await client.add_offsets()
        if not client.must_begin_anew:
            await client.commit_offset()

    async def _end(self, kind: str, *, is_commit: bool) -> None:
        client = await self._ready(kind)
        if client.attempt is not None and client.attempt.is_begun:
            await client.end(is_commit=is_commit)

    async def _ready(self, kind: str) -> Client:
        """The client, or another one in its place, when it can do something new."""
        client = self._clients[kind]
        for _ in range(_MOST_REPEATS):
            if client.unanswered:
                await client.repeat()
        if client.unanswered:
            raise Violation(f"{kind} is never answered: {client.unanswered[0].what}")
        if client.is_over:
            client = self._clients[kind] = self._client(kind)
        if client.pair is None or client.must_begin_anew:
            await client.init()
            return await self._ready(kind)
        return client

    def _client(self, kind: str) -> Client:
        name, is_new = _KINDS[kind]
        return Client(self._world, name, is_new, _TIMEOUT_MS)
