"""A broker's groups, with everything around them made up: disk, network, time and crashes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from millstream.broker.groups import GroupCoordinator
from millstream.broker.state_log import StateLog
from millstream.clock import ManualClock
from millstream.groups.classic_group import ClassicState
from millstream.groups.consumer_group import TopicFacts
from millstream.groups.outcome import Reply
from millstream.settings.groups import GroupSettings
from millstream.settings.log import LogSettings
from millstream.storage.memory_log import MemoryLog
from tests.fakes.simulated_flusher import SimulatedFlusher
from tests.simulation.group_checker import GroupChecker, Violation

GROUP = "mill"
PARTITIONS = 7
TOPIC = "grain"
TOPICS = {TOPIC: TopicFacts(bytes(16), PARTITIONS)}
LONGEST_REBALANCE_MS = 20_000
_PATIENCE_MS = LONGEST_REBALANCE_MS + 2_000
"""Nobody waits longer than the longest rebalance, and the disk."""

_Answer = TypeVar("_Answer")


class ConnectionLost(Exception):
    """What the broker did about the request, if anything, will never be known."""


class GroupWorld:
    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.random = random.Random(seed)
        self.clock = clock
        self.checker = GroupChecker()
        self.settings = GroupSettings(
            initial_rebalance_delay_ms=self.random.choice([0, 100, 3000]),
            max_size=self.random.choice([2**31 - 1, 2**31 - 1, 6]),
        )
        self.is_calm = False
        self._slow_disk = self.random.random() < 0.3
        self._member_number = 0
        self._pending: dict[asyncio.Task[Any], int] = {}
        self.log = self._new_log()
        self._start()

    # Requests

    async def send(self, request: Callable[[GroupCoordinator], Awaitable[_Answer]]) -> _Answer:
        """A request over a slow network; its answer may never arrive."""
        if self.random.random() < 0.5:
            await self.sleep_ms(1, 40)
        task = asyncio.current_task()
        assert task is not None, "clients are tasks"
        self._pending[task] = self.clock.now_ms() + _PATIENCE_MS
        try:
            return await request(self.coordinator)
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

    def crash(self) -> None:
        """Lose everything but a prefix of the log that holds all that was synced."""
        for task in list(self._pending):
            self._cut(task)
        self.coordinator.close()
        self.checker.crashed()
        kept = self.random.randint(self.log.synced_offset, self.log.end_offset)
        self.log = self._new_log(kept)
        self._start()

    def restart(self) -> None:
        """Stop in an orderly way and start again."""
        self.coordinator.close()
        self.checker.crashed()
        self.log = self._new_log(self.log.end_offset)
        self._start()

    def expire(self) -> None:
        """Forget old offsets, and the group if there is nothing left of it."""
        self.coordinator.expire()
        if self.coordinator.describe(GROUP).state == ClassicState.DEAD:
            self.checker.forgotten()

    def _cut(self, task: asyncio.Task[Any]) -> None:
        if self._pending[task] >= 0:
            self._pending[task] = -1
            task.cancel()

    def _new_log(self, kept: int = 0) -> MemoryLog:
        log = MemoryLog("__consumer_offsets/0", LogSettings(), self.clock)
        for stored in self.log._batches if kept else ():
            if stored.header.last_offset < kept:
                log.append([bytearray(stored.content)])
        log.finish_sync(log.begin_sync(), None)
        return log

    def _start(self) -> None:
        flusher = SimulatedFlusher(self._sync_ms)
        state_log = StateLog(self.log, flusher, clock=self.clock, max_decompressed_bytes=1 << 20)
        coordinator = GroupCoordinator(
            state_log,
            settings=self.settings,
            clock=self.clock,
            topics=lambda: TOPICS,
            new_member_id=self._new_member_id,
        )
        self.coordinator = coordinator
        runner = coordinator._runner
        deliver = runner._deliver

        def watch(replies: tuple[Reply, ...]) -> None:
            for reply in replies if coordinator is self.coordinator else ():
                self.checker.answered(reply.ticket)
            deliver(replies)

        runner._deliver = watch  # type: ignore[method-assign]
        coordinator.replay()

    def _sync_ms(self) -> int:
        return self.random.randint(1, 500 if self._slow_disk else 5)

    def _new_member_id(self, client_id: str) -> str:
        self._member_number += 1
        return f"{client_id}-{self._member_number}"
