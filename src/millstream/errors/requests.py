"""What is wrong with requests, and with the topics that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, NotFound, Unavailable


@dataclass(eq=False)
class MalformedMessage(InvalidRequest):
    """The bytes end too early, say what cannot be, or go on where they should end."""

    reason: str

    def __str__(self) -> str:
        return f"malformed message: {self.reason}"


@dataclass(eq=False)
class TooManyElements(InvalidRequest):
    """A request lists more than we take at once."""

    field: str

    def __str__(self) -> str:
        return (
            f"too many elements, counted up to {self.field}: ask for less at once, or raise "
            "millstream.request.max.elements"
        )


@dataclass(eq=False)
class UnexpectedProtocol(InvalidRequest):
    """A client speaks another protocol than the listener it connected to."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False, kw_only=True)
class UnsupportedVersion(InvalidRequest):
    """A client asks for an API that is not announced, or for a version of it that is not."""

    api_key: int
    version: int

    def __str__(self) -> str:
        return f"version {self.version} of API {self.api_key} is not supported"


@dataclass(eq=False)
class BodyTooLarge(InvalidRequest):
    """A request holds more than we take at once."""

    limit_bytes: int
    is_set: bool = True
    """Whether the limit is a setting, and one for which there is a way around."""

    def __str__(self) -> str:
        told = f"the request holds more than {self.limit_bytes} bytes: send less at once"
        if not self.is_set:
            return told
        return f"{told}, or lines as application/x-ndjson, or raise http.request.max.bytes"


@dataclass(eq=False)
class BodyStalled(InvalidRequest):
    """The rest of a request does not come."""

    timeout_s: int

    def __str__(self) -> str:
        return f"nothing of the body came for {self.timeout_s} s: http.request.body.timeout.seconds"


@dataclass(eq=False)
class UnsupportedMediaType(InvalidRequest):
    """A request is of a kind that we do not know."""

    media_type: str
    expected: str

    def __str__(self) -> str:
        return f"a body of {self.media_type!r}: send {self.expected}"


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


@dataclass(eq=False)
class TooManyTopics(InvalidRequest):
    """There are so many topics that no more come to be just because a client names them."""

    topic: str
    limit: int

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} is not created by itself: there are as many topics as "
            f"auto.create.topics.max allows ({self.limit}). Create it, or delete others"
        )


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


@dataclass(eq=False)
class InvalidSettings(InvalidRequest):
    """Several settings cannot be as they are."""

    problems: Sequence[InvalidSetting]

    def __str__(self) -> str:
        lines = "".join(f"\n  {each}" for each in self.problems)
        return f"{len(self.problems)} settings cannot be as they are:{lines}"


class UnknownTopic(NotFound):
    """There is no such topic or partition."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="topic", name=name)


class UnknownPartition(UnknownTopic):
    """The topic has no partition of this number, or would not have it if it were created."""

    def __init__(self, topic: str, partition: int, *, count: int, is_new: bool = False) -> None:
        super().__init__(topic)
        self.partition = partition
        self.count = count
        self.is_new = is_new

    def __str__(self) -> str:
        some = f"{self.count} (0 to {self.count - 1})"
        if self.is_new:
            return f"new topic {self.name!r} would have no partition {self.partition}: only {some}"
        return f"topic {self.name!r} has no partition {self.partition}: it has {some}"


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
class LimitReached(Unavailable):
    """There are as many things of a kind as there may be."""

    kind: str
    limit: int
    setting: str

    def __str__(self) -> str:
        return f"there are {self.limit} {self.kind}, and {self.setting} allows no more"


@dataclass(eq=False, kw_only=True)
class TimedOut(Unavailable):
    """It did not happen in the time that the caller would wait."""

    operation: str
    timeout_ms: int

    def __str__(self) -> str:
        return f"{self.operation} took longer than {self.timeout_ms} ms"
