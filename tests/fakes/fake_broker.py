"""A whole broker, wired by the composition root, on a fake disk and a fake clock.

It runs on any event loop. On a `SimulatedLoop` it needs no threads, and its timers fire at once.
Nothing runs in the background: a test calls the housekeeping passes that it wants.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from typing import Any, Self

from millstream.assembly import Assembly, Dependencies, NewFlusher, assemble
from millstream.broker.broker import Broker
from millstream.broker.groups import GroupCoordinator
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.producer_ids import PRODUCER_ID_BLOCK
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.topics import Topics
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import ManualClock
from millstream.settings.loader import Settings
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import Filesystem
from millstream.storage.flusher import Flusher
from tests.fakes.fake_disk import CrashMode
from tests.fakes.fake_filesystem import FakeFilesystem
from tests.fakes.fake_flusher import PromptFlusher
from tests.fakes.stepping_clock import SteppingClock

PATH = "/data"
STORAGE = StorageSettings(closing_threads=1, max_decompressed_bytes=1 << 20)


class FakeBroker:
    """A broker that starts, stops, crashes and starts again. Call `start` before anything else."""

    def __init__(
        self,
        filesystem: Filesystem | None = None,
        path: str = PATH,
        *,
        clock: ManualClock | None = None,
        new_flusher: NewFlusher = PromptFlusher,
        first_id: int = 1,
        producer_id_block: int = PRODUCER_ID_BLOCK,
        **settings: Any,
    ) -> None:
        """`settings` are parts of Settings; None stands for the default.

        Ids count up from `first_id`: on a disk that another broker has used, choose a higher one.
        """
        self.filesystem = filesystem or FakeFilesystem()
        self.path = path
        self.clock = clock or ManualClock()
        self.wall = SteppingClock(self.clock)
        """What the broker takes for the wall clock."""
        given = {name: part for name, part in settings.items() if part is not None}
        self.settings = Settings(**{"storage": STORAGE, **given})
        self._new_flusher = new_flusher
        self._producer_id_block = producer_id_block
        self._ids = count(first_id)
        self._names = count(1)
        self._assembly: Assembly | None = None

    async def start(self) -> Self:
        dependencies = Dependencies(
            filesystem=self.filesystem,
            clock=self.wall,
            new_flusher=self._new_flusher,
            new_id=lambda: next(self._ids).to_bytes(16, "big"),
            new_name=lambda prefix: f"{prefix}-{next(self._names)}",
            producer_id_block=self._producer_id_block,
        )
        self._assembly = await assemble(self.path, self.settings, dependencies)
        return self

    async def stop(self) -> None:
        await self._running.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def crash(self, mode: CrashMode = "lost", seed: int = 0) -> None:
        """Lose the process, and start another one on what is left on the disk."""
        self.filesystem = self.disk.after_crash(mode, seed)
        # The lost process has no timers any more, and its clients no connection.
        self.groups.close()
        await self.start()

    @property
    def disk(self) -> FakeFilesystem:
        assert isinstance(self.filesystem, FakeFilesystem)
        return self.filesystem

    @property
    def broker(self) -> Broker:
        return self._running.broker

    @property
    def flusher(self) -> Flusher:
        return self.broker.flusher

    @property
    def topics(self) -> Topics:
        return self.broker.topics

    @property
    def groups(self) -> GroupCoordinator:
        return self.broker.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.broker.transactions

    @property
    def subscriptions(self) -> Subscriptions:
        return self.broker.subscriptions

    @property
    def housekeeping(self) -> Housekeeping:
        return self._running.housekeeping

    @property
    def directory(self) -> DataDirectory:
        return self._running.directory

    def shape(self) -> dict[str, tuple[int, Mapping[str, str]]]:
        """Partitions and own settings of each topic that clients created."""
        return {
            topic.name: (len(topic.partitions), topic.overrides)
            for topic in self.topics.all()
            if not topic.is_internal
        }

    def topic_directories(self) -> list[str]:
        """The topics that have a directory on the disk."""
        return self.filesystem.directories(os.path.join(self.path, "topics"))

    @property
    def _running(self) -> Assembly:
        assert self._assembly is not None, "call start first"
        return self._assembly
