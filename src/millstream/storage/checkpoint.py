"""The file that tells where each log was known to be on disk, and where it stopped cleanly.

One line with the CRC-32C of the rest in hexadecimal digits, then JSON:
`{"version": 1, "logs": {"<topic>/<partition>": [recovery point, end offset, active size]}}`, where
the end offset is -1 for a log that is open.

After a crash: holds the old content or the new, whole. What it says may be old, and then more of
the log is scanned than need be; it never says more than is so.
Format: docs/formats/segment.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.errors import CorruptData
from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem, read_whole, write_atomically
from millstream.storage.recovery import LogCheckpoint

_VERSION = 1

Checkpoints = Mapping[str, LogCheckpoint]


class CheckpointFile:
    """Reads and replaces the checkpoint of a data directory."""

    def __init__(self, filesystem: Filesystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._lock = threading.Lock()
        # The newest one, with its number, and the number of the one on disk.
        self._newest: tuple[int, Checkpoints] = (0, {})
        self._written = 0
        self._is_known = False

    def load(self) -> dict[str, LogCheckpoint]:
        """What was written last; empty when nothing was. Raises CorruptData."""
        content = read_whole(self._filesystem, self._path)
        if content is None:
            return {}
        checksum, _, body = content.partition(b"\n")
        try:
            if int(checksum, 16) != crc32c(body):
                raise ValueError("the checksum does not match")
            document = json.loads(body)
            if document["version"] != _VERSION:
                raise ValueError(f"unknown version {document['version']}")
            return {name: LogCheckpoint(*entry) for name, entry in document["logs"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            raise CorruptData(path=self._path, position=0, reason=str(fault)) from fault

    def prepare(self, checkpoints: Checkpoints) -> CheckpointWrite | None:
        """The blocking work of writing this down; None when it would change nothing."""
        number, newest = self._newest
        if self._is_known and checkpoints == newest:
            return None
        self._is_known = True
        self._newest = (number + 1, checkpoints)
        return CheckpointWrite(self, number + 1)

    def prepare_without(self, prefix: str) -> CheckpointWrite:
        """The same for what was prepared last, less the logs whose names begin like this."""
        number, newest = self._newest
        rest = {name: known for name, known in newest.items() if not name.startswith(prefix)}
        self._newest = (number + 1, rest)
        return CheckpointWrite(self, number + 1)

    def write(self, number: int) -> None:
        with self._lock:
            # One write serves all who wait for it, and a slow thread never puts back what a later
            # checkpoint took back.
            if number <= self._written:
                return
            newest, checkpoints = self._newest
            body = json.dumps({"version": _VERSION, "logs": checkpoints}, indent=0).encode()
            try:
                write_atomically(self._filesystem, self._path, b"%08x\n%b" % (crc32c(body), body))
            except OSError:
                # The next one is written even if it says the same.
                self._is_known = False
                raise
            self._written = newest


@dataclass(slots=True, frozen=True)
class CheckpointWrite:
    """A checkpoint on its way to the disk, or one that is newer. Any thread may run it."""

    file: CheckpointFile
    number: int

    def run(self) -> None:
        """Raises OSError."""
        self.file.write(self.number)
