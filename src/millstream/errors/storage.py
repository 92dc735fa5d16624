"""What the disk does not do, and what it did to the data."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import MillstreamError, Unavailable


@dataclass(eq=False, kw_only=True)
class DirectoryLocked(Unavailable):
    """Another process has the data directory open."""

    path: str
    holder: str

    def __str__(self) -> str:
        return (
            f"the data directory {self.path} is in use by {self.holder}: "
            "stop that process or choose another directory"
        )


@dataclass(eq=False)
class DiskFull(Unavailable):
    """There was no room for a write; nothing was stored."""

    path: str

    def __str__(self) -> str:
        return f"no space left for {self.path}: free some, then try again"


@dataclass(eq=False)
class TooManyFiles(Unavailable):
    """The process, or the machine, has no file handle left; nothing was stored."""

    path: str

    def __str__(self) -> str:
        return f"too many open files to use {self.path}: raise the limit (ulimit -n)"


@dataclass(eq=False, kw_only=True)
class CorruptData(MillstreamError):
    """Stored bytes are not what was written.

    `next_offset` is the first offset after the damage that can be read.
    """

    path: str
    position: int
    reason: str
    next_offset: int = -1
    offset: int = -1
    """The first offset that cannot be read."""
    end_position: int = -1

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}"


class RecordsDamaged(CorruptData):
    """What clients are told of damage: where it is in the log, and nothing of the files."""

    def __init__(self, *, log: str, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(
            path=log, position=-1, reason=reason, offset=offset, next_offset=next_offset
        )

    def __str__(self) -> str:
        return (
            f"the records of {self.path} from offset {self.offset} are damaged on disk "
            f"({self.reason}): continue at offset {self.next_offset}"
        )


class StateDamaged(CorruptData):
    """Both copies of the broker's own state are damaged, so that it cannot be known."""

    def __init__(self, *, log: str, places: tuple[str, ...]) -> None:
        super().__init__(path=log, position=0, reason="; ".join(places))
        self.places = places

    def __str__(self) -> str:
        return (
            f"both copies of {self.path} are damaged: {self.reason}. Restore the data directory "
            "from a backup, or run `millstream segment repair` to go on with what is left"
        )


@dataclass(eq=False, kw_only=True)
class StorageFailure(MillstreamError):
    """The disk failed; what was not yet acknowledged never will be."""

    path: str
    operation: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.operation} of {self.path} failed: {self.reason}; the partition takes no more "
            "writes until the broker is restarted on a healthy disk"
        )
