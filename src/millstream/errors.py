"""Every error that Millstream raises on purpose, named by what the caller must do.

    MillstreamError
    ├── InvalidRequest          fix the request; sending it again changes nothing
    │   ├── InvalidBatch        the bytes are not a record batch we can accept
    │   ├── MessageTooLarge     a batch, or what it unpacks to, is over the limit
    │   ├── UnsupportedCodec    the batch names a compression codec we do not know
    │   ├── OffsetOutOfRange    the offset is not in the log; seek to one that is
    │   └── InvalidSetting      a setting has a value that it cannot take
    ├── NotFound                there is no such thing; create it or look elsewhere
    ├── Conflict                the state has moved on; read it again, then decide
    │   ├── OutOfOrderSequence  an idempotent producer left a gap
    │   └── AlreadyExists       the thing to be created is there
    ├── Fenced                  a newer owner took over; stop
    ├── Unavailable             nothing is wrong with the request; try again later
    │   ├── DirectoryLocked     another process holds the data directory
    │   ├── DiskFull            the write did not happen; free space and try again
    │   └── TooManyFiles        the process may open no more; raise its limit
    ├── CorruptData             stored bytes are damaged; restore them or skip them
    └── StorageFailure          the disk broke a promise; the partition has stopped

Errors carry data. The message that a person reads is made from it in `__str__`, and
names the thing, the value and what to do.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """Base of the tree. Never raised itself."""


class InvalidRequest(MillstreamError):
    """The request cannot be carried out as it stands."""


class InvalidBatch(InvalidRequest):
    """The bytes are not a well-formed record batch."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"invalid record batch: {self.reason}"


class MessageTooLarge(InvalidRequest):
    """A batch is larger than the log takes, or unpacks to more than we allow."""

    def __init__(self, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(size_bytes, limit_bytes)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes

    def __str__(self) -> str:
        return (
            f"a batch of {self.size_bytes} bytes is over the limit of {self.limit_bytes}: "
            "send less at once or raise max.message.bytes"
        )


class UnsupportedCodec(InvalidRequest):
    """The batch is compressed in a way we do not know."""

    def __init__(self, codec: int) -> None:
        super().__init__(codec)
        self.codec = codec

    def __str__(self) -> str:
        return (
            f"compression codec {self.codec} is unknown: "
            "use none, gzip, snappy, lz4 or zstd (0 to 4)"
        )


class OffsetOutOfRange(InvalidRequest):
    """The offset is outside the log."""

    def __init__(self, *, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(offset, start_offset, end_offset)
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset

    def __str__(self) -> str:
        return (
            f"offset {self.offset} is not in the log, which runs from {self.start_offset} "
            f"to {self.end_offset}"
        )


class InvalidSetting(InvalidRequest):
    """A setting has a value outside its range, or a name that nothing has."""

    def __init__(self, *, name: str, value: object, expected: str, source: str = "") -> None:
        super().__init__(name, value, expected, source)
        self.name = name
        self.value = value
        self.expected = expected
        self.source = source

    def __str__(self) -> str:
        prefix = f"{self.source}: " if self.source else ""
        return f"{prefix}{self.name} = {self.value!r}: expected {self.expected}"


class NotFound(MillstreamError):
    """There is no such thing."""

    def __init__(self, *, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"there is no {self.kind} {self.name!r}"


class Conflict(MillstreamError):
    """The state is not what the request took it to be."""


class OutOfOrderSequence(Conflict):
    """An idempotent producer's batch does not follow its last one."""

    def __init__(self, *, producer_id: int, expected: int, actual: int) -> None:
        super().__init__(producer_id, expected, actual)
        self.producer_id = producer_id
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id} sent sequence {self.actual} where {self.expected} "
            "comes next: a batch before it is missing"
        )


class AlreadyExists(Conflict):
    """The thing to be created is there already."""

    def __init__(self, *, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} exists already"


class Fenced(MillstreamError):
    """A newer epoch owns what the caller thinks is its own."""

    def __init__(self, *, kind: str, identity: int | str, epoch: int, current_epoch: int) -> None:
        super().__init__(kind, identity, epoch, current_epoch)
        self.kind = kind
        self.identity = identity
        self.epoch = epoch
        self.current_epoch = current_epoch

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.identity} with epoch {self.epoch} is fenced: "
            f"epoch {self.current_epoch} took over"
        )


class Unavailable(MillstreamError):
    """The request is fine and cannot be served now."""


class DirectoryLocked(Unavailable):
    """Another process has the data directory open."""

    def __init__(self, *, path: str, holder: str) -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        return (
            f"the data directory {self.path} is in use by {self.holder}: "
            "stop that process or choose another directory"
        )


class DiskFull(Unavailable):
    """There was no room for a write; nothing was stored."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"no space left for {self.path}: free some, then try again"


class TooManyFiles(Unavailable):
    """The process, or the machine, has no file handle left; nothing was stored."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"too many open files to use {self.path}: raise the limit (ulimit -n)"


class CorruptData(MillstreamError):
    """Stored bytes are not what was written.

    `next_offset` is the first offset after the damage that can be read.
    """

    def __init__(self, *, path: str, position: int, reason: str, next_offset: int = -1) -> None:
        super().__init__(path, position, reason, next_offset)
        self.path = path
        self.position = position
        self.reason = reason
        self.next_offset = next_offset

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}"


class StorageFailure(MillstreamError):
    """The disk failed; what was not yet acknowledged never will be."""

    def __init__(self, *, path: str, operation: str, reason: str) -> None:
        super().__init__(path, operation, reason)
        self.path = path
        self.operation = operation
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.operation} of {self.path} failed: {self.reason}; the partition takes no more "
            "writes until the broker is restarted on a healthy disk"
        )
