"""What transactions happen in: a disk, a network, time, crashes and restarts, all from one seed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from random import Random
from typing import Any, TypeVar

from millstream.broker.connection_numbers import ConnectionNumbers
from millstream.clock import ManualClock
from millstream.errors import MillstreamError
from millstream.records import Record, build
from millstream.settings.log import LogSettings
from millstream.settings.names import CATALOG_TOPIC, TRANSACTIONS_TOPIC
from millstream.settings.transactions import TransactionSettings
from millstream.storage.partition_log import PartitionLog
from tests.fakes.fake_broker import FakeBroker
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import Crash, CrashMoment, FakeFilesystem
from tests.fakes.simulated_loop import SimulatedLoop, cancel_all, run_simulated
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SOURCE, SOURCE_RECORDS, SimulatedBroker
from tests.simulation.transaction_checker import TransactionChecker

LASTING = (("a", 0), ("a", 1), ("b", 0))
FLEETING = ("f", 0)
"""Its topic comes and goes."""
LONGEST_TIMEOUT_MS = 8_000
_ALWAYS_MS = 7 * 24 * 3600 * 1000
_LONGEST_SYNC_MS = 400
_SLOW_SYNC_MS = 300
COORDINATOR_LOG = f"{TRANSACTIONS_TOPIC}/0"
CATALOG_LOG = f"{CATALOG_TOPIC}/0"
DATA_LOG = "a/0"
_SLOW_LOGS = ("", COORDINATOR_LOG, CATALOG_LOG, DATA_LOG, f"{FLEETING[0]}/0")

_T = TypeVar("_T")


class Lost(Exception):
    """What the broker did about a request, if anything, will never be known."""


class World:
    """Several lives of a broker, one after the other, each on what the last one left on disk."""

    def __init__(
        self,
        seed: int,
        *,
        is_eventful: bool = True,
        broker: type[SimulatedBroker] = SimulatedBroker,
    ) -> None:
        """An uneventful one has a good network, a steady disk, and no crash but those asked for.

        `broker` may be one with a defect.
        """
        self.random = Random(seed)
        self.clock = ManualClock()
        self.checker = TransactionChecker()
        self.is_calm = not is_eventful
        self.life = 0
        """How often the broker has started."""
        self.is_slow_disk = False
        self.slow_log = self.random.choice(_SLOW_LOGS)
        """What others write is durable before that is."""
        self.is_slow_network = False
        """One keeps many writes, and lets each go when something else has just been done."""
        self._kept: list[tuple[str, Callable[[SimulatedBroker], Awaitable[Any]]]] = []
        self._connections = ConnectionNumbers()
        settings: dict[str, Any] = {}
        if is_eventful:
            expiration_ms = self.random.choice([2_000, 12_000, _ALWAYS_MS])
            segment_bytes = self.random.choice([600, LogSettings().segment_bytes])
            settings = {
                "transactions": TransactionSettings(id_expiration_ms=expiration_ms),
                "log": LogSettings(segment_bytes=segment_bytes),
            }
        self.broker = broker(
            _disk().after_crash("kept"),
            self.clock,
            connections=self._connections,
            sync_ms=self._sync_ms,
            **settings,
        )

    @property
    def disk(self) -> FakeFilesystem:
        return self.broker.disk

    # Lives

    def live(self, play: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start a broker and let something happen to it; returns whether it came to its end."""
        loop = SimulatedLoop(self.clock)
        defects = _Defects()
        loop.set_exception_handler(defects.on_loop)
        with defects.heard():
            try:
                loop.run_until_complete(self._life(play))
                is_done = True
            except Crash:
                is_done = False
            finally:
                loop.run_until_complete(cancel_all())
                loop.close()
        defects.check()
        return is_done

    async def _life(self, play: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # No connection outlives a broker.
        self._kept.clear()
        self.life += 1
        await self.alive(self.broker.start())
        self.checker.restarted(self.broker)
        await self.alive(play())

    async def alive(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await something, unless the broker crashes first."""
        task = asyncio.get_running_loop().create_task(work)
        while not task.done():
            self.check_alive()
            await asyncio.wait([task], timeout=1)
        self.check_alive()
        return task.result()

    def check_alive(self) -> None:
        self.disk.check_alive()

    def crash_soon(self, operations: int, moment: CrashMoment) -> None:
        """Lose power when the disk has had this many more operations."""
        self.disk.crash_at(self.disk.operation_count + operations, moment)

    def power_on(self, mode: CrashMode) -> None:
        """Go on with what a crash has left on the disk."""
        seed = self.random.randrange(1 << 30)
        self.broker.filesystem = self.disk.after_crash(mode, seed)

    def _sync_ms(self, log: PartitionLog) -> int:
        if log.name == self.slow_log:
            return _SLOW_SYNC_MS
        return self.random.randint(1, _LONGEST_SYNC_MS if self.is_slow_disk else 20)

    # The network

    def connect(self) -> int:
        return self._connections.next()

    async def deliver(
        self,
        send: Callable[[SimulatedBroker], Awaitable[_T]],
        *,
        name: str,
        what: str,
        is_first: bool,
    ) -> _T:
        """Send a request, and bring the answer. Raises Lost."""
        broker = self.broker
        if self.is_calm:
            answer = await send(broker)
            self.check_alive()
            return answer
        await self.sleep_ms(0, 20)
        is_slow = self.is_slow_network and what in {"write", "commit offset"}
        odds = (40, 6, 4, 50) if is_first else (60, 6, 4, 30) if is_slow else (85, 6, 3, 6)
        kind = self.random.choices(("well", "mute", "gone", "late"), odds)[0]
        if kind == "well":
            answer = await send(broker)
            self._let_go(name, what)
            await self.sleep_ms(0, 20)
            # What a dead broker says is not heard.
            self.check_alive()
            return answer
        if kind == "late" and is_slow:
            self._kept.append((name, send))
        elif kind != "gone":
            delay_ms = self.random.choice([300, 3_000, 20_000]) if kind == "late" else 0
            asyncio.get_running_loop().create_task(self._arrive(send, delay_ms))
        await self.sleep_ms(0, 1_000)
        raise Lost

    def _let_go(self, name: str, what: str) -> None:
        """Preferably a write of the same client, when it has just begun the next transaction."""
        own = [each for each in self._kept if each[0] == name] if what == "add" else []
        if own and self.random.random() < 0.8:
            kept = own[-1]
        elif self._kept and self.random.random() < 0.05:
            kept = self.random.choice(self._kept)
        else:
            return
        self._kept.remove(kept)
        asyncio.get_running_loop().create_task(self._arrive(kept[1], 0))

    async def _arrive(
        self, send: Callable[[SimulatedBroker], Awaitable[Any]], delay_ms: int
    ) -> None:
        """Let a request come to the broker whose answer nobody hears."""
        await self.sleep_ms(0, delay_ms)
        with suppress(MillstreamError, Crash):
            await send(self.broker)

    async def sleep_ms(self, shortest: int, longest: int) -> None:
        await asyncio.sleep(self.random.randint(shortest, longest) / 1000)


class _Defects(logging.Handler):
    """Hears of what failed where nobody waits for it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        if not isinstance(failure, Crash):
            self._found.append(f"{record.getMessage()}: {failure!r}")

    def on_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if not isinstance(failure, Crash):
            self._found.append(f"{context['message']}: {failure!r}")

    @contextmanager
    def heard(self) -> Iterator[None]:
        log = logging.getLogger("millstream")
        before = log.propagate
        log.propagate = False
        log.addHandler(self)
        try:
            yield
        finally:
            log.removeHandler(self)
            log.propagate = before

    def check(self) -> None:
        if self._found:
            raise Violation(f"the broker has failed: {self._found}")


@cache
def _disk() -> FakeFilesystem:
    """One with topics on it."""
    broker = FakeBroker()

    async def prepare() -> None:
        await broker.start()
        for name, partitions in (("a", 2), ("b", 1), ("f", 1), (SOURCE, 1)):
            await broker.topics.create(name, partitions=partitions, overrides={})
        log = broker.topics.partition(SOURCE, 0).log
        log.append([build([Record(n, 0, None, b"") for n in range(SOURCE_RECORDS)])])
        log.sync()

    run_simulated(prepare(), broker.clock)
    return broker.disk.after_crash("lost")
