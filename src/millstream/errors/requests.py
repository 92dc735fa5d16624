"""What is wrong with requests, and with the topics that they name."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, NotFound, Unavailable


@dataclass(eq=False)
class MalformedMessage(InvalidRequest):
    """The bytes end too early, say what cannot be, or go on where they should end."""

    reason: str

    def __str__(self) -> str:
        return f"malformed message: {self.reason}"


@dataclass(eq=False, kw_only=True)
class OffsetOutOfRange(InvalidRequest):
    """The offset is outside the log."""

    offset: int
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return (
            f"offset {self.offset} is not in the log, which runs from {self.start_offset} "
            f"to {self.end_offset}"
        )


@dataclass(eq=False, kw_only=True)
class InvalidName(InvalidRequest):
    """A thing cannot have this name."""

    kind: str
    name: str
    expected: str

    def __str__(self) -> str:
        return f"{self.name!r} is no name for a {self.kind}: expected {self.expected}"


@dataclass(eq=False, kw_only=True)
class InvalidRegex(InvalidRequest):
    """A regular expression that no topic name can be held against."""

    def __init__(self, *, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.text!r} is no regular expression to choose topics by: {self.reason}"


@dataclass(eq=False, kw_only=True)
class InvalidPartitions(InvalidRequest):
    """A topic cannot have, or go to, this number of partitions."""

    topic: str
    count: int
    expected: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} with {self.count} partitions: expected {self.expected}"


@dataclass(eq=False, kw_only=True)
class InvalidSetting(InvalidRequest):
    """A setting has a value outside its range, or a name that nothing has."""

    name: str
    value: object
    expected: str
    source: str = ""

    def __str__(self) -> str:
        prefix = f"{self.source}: " if self.source else ""
        return f"{prefix}{self.name} = {self.value!r}: expected {self.expected}"


class UnknownTopic(NotFound):
    """There is no such topic or partition."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="topic", name=name)


class UnknownTopicId(NotFound):
    """There is no topic with this id."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(kind="topic with id", name=topic_id.hex())


@dataclass(eq=False, kw_only=True)
class AlreadyExists(Conflict):
    """The thing to be created is there already."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} exists already"


@dataclass(eq=False)
class UnknownLeaderEpoch(Conflict):
    """The client has heard of a leader that this broker knows nothing of."""

    epoch: int

    def __str__(self) -> str:
        return f"leader epoch {self.epoch} is not known here: ask for the metadata again"


@dataclass(eq=False, kw_only=True)
class TimedOut(Unavailable):
    """It did not happen in the time that the caller would wait."""

    operation: str
    timeout_ms: int

    def __str__(self) -> str:
        return f"{self.operation} took longer than {self.timeout_ms} ms"
