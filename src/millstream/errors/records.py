"""What is wrong with records that were sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest


@dataclass(eq=False)
class InvalidBatch(InvalidRequest):
    """The bytes are not a well-formed record batch."""

    reason: str

    def __str__(self) -> str:
        return f"invalid record batch: {self.reason}"


class ChecksumMismatch(InvalidBatch):
    """The batch was damaged on its way here."""


@dataclass(eq=False, kw_only=True)
class InvalidRecord(InvalidRequest):
    """A record is well formed, but not one that its topic takes."""

    topic: str
    reason: str
    numbers: Sequence[int] = ()
    """Which records of their batch these are, where only some of them are at fault."""

    def __str__(self) -> str:
        return f"topic {self.topic!r} takes no such record: {self.reason}"


class InvalidTimestamp(InvalidRecord):
    """A record is from too far in the past or in the future for its topic."""


@dataclass(eq=False, kw_only=True)
class MessageTooLarge(InvalidRequest):
    """A batch is larger than the log takes, or unpacks to more than we allow."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"a batch of {self.size_bytes} bytes is over the limit of {self.limit_bytes}: "
            "send less at once or raise max.message.bytes"
        )


@dataclass(eq=False, kw_only=True)
class RecordTooLarge(InvalidRequest):
    """Stored records take more memory, or more time, than a reader may be given.

    `next_offset` is the first offset behind what cannot be read here.
    """

    offset: int
    next_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the message at offset {self.offset} cannot be served here: {self.reason}. "
            f"Fetch it with a Kafka client, or continue at offset {self.next_offset}"
        )


@dataclass(eq=False)
class UnsupportedCodec(InvalidRequest):
    """The batch is compressed in a way we do not know."""

    codec: int

    def __str__(self) -> str:
        return (
            f"compression codec {self.codec} is unknown: "
            "use none, gzip, snappy, lz4 or zstd (0 to 4)"
        )


@dataclass(eq=False, kw_only=True)
class OutOfOrderSequence(Conflict):
    """An idempotent producer's batch does not follow its last one."""

    producer_id: int
    expected: int
    actual: int

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id} sent sequence {self.actual} where {self.expected} "
            "comes next: a batch before it is missing"
        )
