"""A broker with one group, and everything around it simulated: disk, network, time and crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from millstream.broker.groups import GroupCoordinator
from millstream.clock import ManualClock
from millstream.groups.classic_group import ClassicState
from millstream.records import Record, build
from millstream.settings.groups import GroupSettings
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.fake_flusher import DelayedFlusher
from tests.fakes.simulated_loop import run_simulated
from tests.simulation.group_checker import MOST_OFFSETS, GroupChecker, Violation

GROUP = "mill"
PARTITIONS = 7
TOPIC = "grain"
LONGEST_REBALANCE_MS = 20_000
_PATIENCE_MS = LONGEST_REBALANCE_MS + 2_000
"""Nobody waits longer than the longest rebalance, and the disk."""

_LONGEST_SYNC_MS = 500
_LONGEST_WAIT_S = 3

_MODES: tuple[CrashMode, ...] = ("kept", "lost", "torn")

_Answer = TypeVar("_Answer")


class ConnectionLost(Exception):
    """What the broker did about the request, if anything, will never be known."""


class GroupWorld:
    """Call `start` before anything else."""

    def __init__(
        self,
        seed: int,
        clock: ManualClock,
        *,
        broken: Callable[[GroupCoordinator], Any] | None = None,
        flusher: type[DelayedFlusher] = DelayedFlusher,
    ) -> None:
        """`broken` stands between the clients and the coordinator."""
        self.random = random.Random(seed)
        self.clock = clock
        self.checker = GroupChecker()
        self.is_calm = False
        self.life = 0
        """How often the broker has started."""
        self._broken = broken
        self._slow_disk = self.random.random() < 0.3
        self._long_sync = asyncio.Event()
        """Cleared to make the next sync a long one, which sets it when it begins."""
        self._long_sync.set()
        self._pending: dict[asyncio.Task[Any], int] = {}
        self._groups: Any = None
        self._broker = FakeBroker(
            _disk().after_crash("kept"),
            clock=clock,
            first_id=1000,
            new_flusher=partial(flusher, self._sync_ms),
            groups=GroupSettings(
                initial_rebalance_delay_ms=self.random.choice([0, 100, 3000]),
                max_size=self.random.choice([2**31 - 1, 2**31 - 1, 6]),
            ),
        )

    async def start(self) -> None:
        await self._broker.start()
        self._open()

    @property
    def coordinator(self) -> GroupCoordinator:
        return self._broker.groups

    # Requests

    async def send(self, request: Callable[[GroupCoordinator], Awaitable[_Answer]]) -> _Answer:
        """A request over a slow network; its answer may never arrive."""
        if self.random.random() < 0.5:
            await self.sleep_ms(1, 40)
        while self._groups is None:
            await self.sleep_ms(1, 40)
        task = asyncio.current_task()
        assert task is not None, "clients are tasks"
        self._pending[task] = self.clock.now_ms() + _PATIENCE_MS
        try:
            return await request(self._groups)
        except asyncio.CancelledError:
            is_cut = self._pending[task] < 0
            if not is_cut or task.uncancel():
                # The client itself was stopped.
                raise
            raise ConnectionLost from None
        finally:
            self._pending.pop(task, None)

    async def sleep_ms(self, least: int, most: int) -> None:
        await asyncio.sleep(self.random.randint(least, most) / 1000)

    def check_patience(self) -> None:
        """Somebody who waits longer than anything may take has been forgotten."""
        for task, deadline_ms in self._pending.items():
            if 0 <= deadline_ms < self.clock.now_ms():
                raise Violation(f"{task.get_name()} waits for an answer that does not come")

    # What goes wrong

    def cut_connection(self) -> None:
        if self._pending:
            self._cut(self.random.choice(list(self._pending)))

    async def sync_begun(self) -> None:
        """Return while the disk is in the middle of a long sync, or when there is none for long."""
        self._long_sync.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._long_sync.wait(), _LONGEST_WAIT_S)
        self._long_sync.set()

    async def crash(self) -> None:
        """Lose the process, and perhaps what was not synced."""
        for task in list(self._pending):
            self._cut(task)
        self._close()
        mode = self.random.choice(_MODES)
        await self._broker.crash(mode, self.random.randrange(1 << 30))
        self._open()

    async def restart(self) -> None:
        """Stop in an orderly way and start again."""
        self._close()
        await self._broker.restart()
        self._open()

    def expire(self) -> None:
        """Forget old offsets, and the group if nothing is left of it."""
        self.coordinator.expire()
        if self.coordinator.describe(GROUP).state == ClassicState.DEAD:
            self.checker.forgotten()

    def _cut(self, task: asyncio.Task[Any]) -> None:
        if self._pending[task] >= 0:
            self._pending[task] = -1
            task.cancel()

    def _close(self) -> None:
        self._groups = None
        self.checker.crashed()

    def _open(self) -> None:
        self.life += 1
        groups = self._broker.groups
        self._groups = groups if self._broken is None else self._broken(groups)

    def _sync_ms(self, _: PartitionLog) -> int:
        if not self._long_sync.is_set():
            self._long_sync.set()
            return _LONGEST_SYNC_MS
        return self.random.randint(1, _LONGEST_SYNC_MS if self._slow_disk else 5)


@cache
def _disk() -> FakeFilesystem:
    """One with a topic that has records for all offsets that are committed."""
    broker = FakeBroker()

    async def prepare() -> None:
        await broker.start()
        # A group commits offsets of partitions that need not exist, so that few logs are opened.
        topic = await broker.topics.create(TOPIC, partitions=1, overrides={})
        topic.partitions[0].log.append(
            [build([Record(n, 0, None, b"") for n in range(MOST_OFFSETS)])]
        )
        await broker.stop()

    run_simulated(prepare(), broker.clock)
    return broker.disk
