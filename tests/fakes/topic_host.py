"""The broker's topics on any filesystem, with syncs that happen at once, in the caller's thread."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import count

from millstream.broker.opening import open_data
from millstream.broker.topics import Topics
from millstream.clock import ManualClock
from millstream.errors import StorageFailure
from millstream.settings.log import LogSettings
from millstream.settings.storage import StorageSettings
from millstream.settings.topics import TopicSettings
from millstream.storage.data_directory import remove_tree
from millstream.storage.filesystem import Filesystem
from millstream.storage.flusher import Done, Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog

PATH = "/data"


class PromptFlusher(Flusher):
    """Syncs while its caller waits, so that a crash comes where it is told to."""

    def __init__(self) -> None:
        super().__init__(threads=0, wake=lambda: None)

    def when_durable(self, log: PartitionLog, offset: int, done: Done) -> None:
        assert isinstance(log, LocalLog)
        try:
            if log.synced_offset < offset:
                log.sync()
        except StorageFailure as failure:
            done(failure)
        else:
            done(None)


class TopicHost:
    """A data directory with its topics. Call `start` before anything else."""

    def __init__(
        self,
        filesystem: Filesystem,
        path: str = PATH,
        *,
        settings: TopicSettings | None = None,
        defaults: LogSettings | None = None,
        first_id: int = 1,
    ) -> None:
        self.filesystem = filesystem
        self.clock = ManualClock()
        self.flusher = PromptFlusher()
        self.released: list[LocalLog] = []
        self._ids = count(first_id)
        storage = StorageSettings(closing_threads=1)
        defaults = defaults or LogSettings()
        self.opened = open_data(
            filesystem, path, storage=storage, defaults=defaults, clock=self.clock
        )
        self.directory = self.opened.directory
        self.topics = Topics(
            self.opened,
            self.flusher,
            settings=settings or TopicSettings(),
            storage=storage,
            defaults=defaults,
            clock=self.clock,
            new_id=lambda: next(self._ids).to_bytes(16, "big"),
            release=self._release,
        )

    async def start(self) -> list[str]:
        return [*self.opened.notes, *await self.topics.start()]

    async def _release(self, logs: Sequence[LocalLog]) -> None:
        self.released += logs

    def shape(self) -> dict[str, tuple[int, Mapping[str, str]]]:
        """Partitions and own settings of each topic that is not the broker's own."""
        return {
            topic.name: (len(topic.partitions), topic.overrides)
            for topic in self.topics.all()
            if not topic.is_internal
        }

    def remove_leftovers(self) -> None:
        for path in self.directory.take_leftovers():
            remove_tree(self.filesystem, path)

    def checkpoint(self) -> None:
        write = self.directory.prepare_checkpoint()
        if write is not None:
            write.run()

    def close(self) -> None:
        self.directory.close()

    def directories(self) -> list[str]:
        """The topics that have a directory."""
        return self.filesystem.directories(os.path.join(self.directory.path, "topics"))
