"""Composition root: the only place where objects are wired together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable

import uvloop

from millstream import __version__
from millstream.broker.housekeeping import Housekeeping
from millstream.clock import Clock, SystemClock
from millstream.errors import InvalidSetting
from millstream.settings.loader import Settings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import Filesystem, LocalFilesystem
from millstream.storage.flusher import Flusher

# A compaction thread that is busy lets go of the interpreter this often. Python's own 5 ms would
# show in the latency of every client.
_SWITCH_INTERVAL_S = 0.0005


def run(settings: Settings, *, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `say` gets each line meant for a person."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    uvloop.run(_serve(os.path.abspath(settings.storage.data_dir), settings, say))


async def _serve(path: str, settings: Settings, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    say(f"millstream {__version__}")
    say(f"opening {path}")
    filesystem, clock = LocalFilesystem(), SystemClock()
    # Recovery reads the disk; meanwhile the loop stays free to hear a signal.
    directory = await asyncio.to_thread(_open, filesystem, path, settings, clock)
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(flusher.collect)

    flusher = Flusher(threads=settings.storage.flush_threads, wake=wake)
    housekeeping = Housekeeping(
        directory,
        flusher,
        filesystem,
        storage=settings.storage,
        defaults=settings.log,
        clock=clock,
    )
    try:
        for line in _recovery_lines(directory):
            say(line)
        say(f"ready data={path}")
        async with asyncio.TaskGroup() as tasks:
            upkeep = tasks.create_task(housekeeping.run())
            await stop.wait()
            say("stopping")
            upkeep.cancel()
    finally:
        flusher.close()
        directory.close()
        for line in directory.take_notes():
            say(line)
    say("stopped")


def _recovery_lines(directory: DataDirectory) -> list[str]:
    lines = [line for report in directory.reports for line in report.lines()]
    return [*directory.take_notes(), *lines]


def _open(filesystem: Filesystem, path: str, settings: Settings, clock: Clock) -> DataDirectory:
    try:
        return DataDirectory(
            filesystem, path, storage=settings.storage, defaults=settings.log, clock=clock
        )
    except OSError as error:
        raise InvalidSetting(
            name="data.dir",
            value=path,
            expected=f"a directory that can be opened ({error.strerror})",
        ) from None
