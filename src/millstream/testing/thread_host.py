"""Runs a broker in a thread of this process, on an event loop of its own.

Invariant: when `stop` has returned, or `start` has raised, the thread and the sockets are gone.
After a crash of the caller: the thread is a daemon, so it keeps no process alive.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any

from millstream import app
from millstream.assembly import Dependencies
from millstream.clock import Clock
from millstream.errors import BrokerNotRunning
from millstream.settings.loader import Settings
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.memory_filesystem import MemoryFilesystem
from millstream.testing.controls import Controls
from millstream.testing.fault_rules import FaultRules
from millstream.testing.faulty_door import new_faulty_door
from millstream.testing.movable_time import MovableClock, MovableLoop
from millstream.testing.plan import Plan


class ThreadHost:
    """One broker, which can be started and stopped again; memory keeps what it held."""

    def __init__(self) -> None:
        self._memory = MemoryFilesystem()
        self._thread: threading.Thread | None = None
        self._loop: MovableLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_wanted = False
        self._controls: Controls | None = None
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        # A fork of the process has no threads but its own.
        is_here = self._thread is not None and self._thread.is_alive()
        return is_here and self._controls is not None

    def start(self, plan: Plan) -> None:
        """Return when it serves. Raises what keeps it from that."""
        filesystem = self._memory if plan.directory is None else LocalFilesystem()
        clock = MovableClock(plan.moved_ms)
        started = threading.Event()
        self._failure = None
        self._is_wanted = True
        self._thread = threading.Thread(
            target=self._run,
            args=(plan.loaded(), filesystem, clock, started),
            name="millstream-broker",
            daemon=True,
        )
        self._thread.start()
        started.wait()
        if not self.is_running:
            self.stop()

    def begin(self, name: str, values: dict[str, Any]) -> Future[Any]:
        """Begin to do something to the broker; see `Controls`."""
        if not self.is_running or self._controls is None or self._loop is None:
            raise BrokerNotRunning
        work = getattr(self._controls, name)(**values)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, name: str, values: dict[str, Any]) -> Any:
        """Do it, and return what comes of it."""
        begun = self.begin(name, values)
        try:
            return begun.result()
        except CancelledError:
            raise BrokerNotRunning from None
        except BaseException:
            # Also Ctrl-C in the caller's thread: what nobody waits for any more must not go on.
            begun.cancel()
            raise

    def stop(self) -> None:
        """Stop it in good order. Raises what it has failed with. May be called twice."""
        if self._thread is None:
            return
        # In this order: a broker that is still starting looks when it has started.
        self._is_wanted = False
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # it has stopped by itself
                loop.call_soon_threadsafe(stop.set)
        self._thread.join()
        self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(
        self, settings: Settings, filesystem: Filesystem, clock: MovableClock, started: Any
    ) -> None:
        try:
            with asyncio.Runner(loop_factory=partial(MovableLoop, clock)) as runner:
                runner.run(self._serve(settings, filesystem, clock, started))
        except (
            BaseException
        ) as failure:  # Outer edge of the thread: it is the caller's, see `stop`.
            self._failure = failure
        finally:
            self._controls = self._stop = self._loop = None
            started.set()

    async def _serve(
        self, settings: Settings, filesystem: Filesystem, clock: Clock, started: threading.Event
    ) -> None:
        rules = FaultRules()

        dependencies = Dependencies(
            filesystem=filesystem, clock=clock, kafka_door=partial(new_faulty_door, rules=rules)
        )
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MovableLoop)
        async with app.running(settings, say=lambda _: None, dependencies=dependencies) as running:
            self._loop, self._stop = loop, asyncio.Event()
            self._controls = Controls(running.broker, rules, loop)
            started.set()
            if self._is_wanted:
                await self._stop.wait()
            self._controls = None
            # What holds a request up must not hold up the end.
            rules.clear()
