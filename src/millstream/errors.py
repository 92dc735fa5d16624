"""Every error that Millstream raises on purpose, named by what the caller must do.

    MillstreamError
    ├── InvalidRequest           fix the request; sending it again changes nothing
    │   ├── MalformedMessage     the bytes are not the message they should be
    │   ├── InvalidBatch         the bytes are not a record batch we can accept
    │   │   └── ChecksumMismatch they were damaged on the way; send them again
    │   ├── InvalidRecord        the topic takes no record like this one
    │   ├── MessageTooLarge      a batch, or what it unpacks to, is over the limit
    │   ├── MetadataTooLarge     what comes with a committed offset is over the limit
    │   ├── UnsupportedCodec     the batch names a compression codec we do not know
    │   ├── UnsupportedAssignor  the group is to be assigned by a rule we do not know
    │   ├── OffsetOutOfRange     the offset is not in the log; seek to one that is
    │   ├── InvalidName          a topic, group or such cannot be called this
    │   ├── InvalidRegex         the regular expression is none, or uses what is not supported
    │   ├── InvalidPartitions    a topic cannot have this many partitions
    │   ├── InvalidTimeout       a session cannot be this long or short
    │   └── InvalidSetting       a setting has a value that it cannot take
    ├── NotFound                 there is no such thing; create it or look elsewhere
    │   ├── UnknownTopic         no topic or partition has this name
    │   ├── UnknownTopicId       no topic has this id; it may have been deleted
    │   ├── UnknownGroup         no group has this name
    │   └── UnknownMember        the group has no such member; join again
    ├── Conflict                 the state has moved on; read it again, then decide
    │   ├── OutOfOrderSequence   an idempotent producer left a gap
    │   ├── AlreadyExists        the thing to be created is there
    │   ├── IllegalGeneration    the group has another generation; join again
    │   ├── RebalanceInProgress  the group is rebalancing; join again
    │   ├── MemberIdRequired     join again, with the id that comes with this
    │   ├── InconsistentProtocol the group's members could not agree with this one
    │   ├── UnknownLeaderEpoch   the client has heard of a newer leader than this broker is
    │   └── NonEmptyGroup        the group has members; stop them first
    │       └── SubscribedGroup  the group reads the topic; stop it first
    ├── Fenced                   a newer owner took over; stop
    │   ├── FencedInstance       another member took over this static identity
    │   │   └── UnreleasedInstance  it is in use by a living member
    │   └── FencedMember         the member's epoch is not its current one; join again
    │       └── StaleMember      it is behind; heartbeat, then try again
    ├── Unavailable              nothing is wrong with the request; try again later
    │   ├── DirectoryLocked      another process holds the data directory
    │   ├── DiskFull             the write did not happen; free space and try again
    │   ├── TooManyFiles         the process may open no more; raise its limit
    │   ├── GroupFull            the group has as many members as it may have
    │   └── TimedOut             it took longer than the caller would wait
    ├── CorruptData              stored bytes are damaged; restore them or skip them
    └── StorageFailure           the disk broke a promise; the partition has stopped

Errors carry data. The message that a person reads is made from it in `__str__`, and
names the thing, the value and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


class MillstreamError(Exception):
    """Base of the tree. Never raised itself."""


class InvalidRequest(MillstreamError):
    """The request cannot be carried out as it stands."""


@dataclass(eq=False)
class MalformedMessage(InvalidRequest):
    """The bytes end too early, say what cannot be, or go on where they should end."""

    reason: str

    def __str__(self) -> str:
        return f"malformed message: {self.reason}"


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

    def __str__(self) -> str:
        return f"topic {self.topic!r} takes no such record: {self.reason}"


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
class MetadataTooLarge(InvalidRequest):
    """The text that comes with a committed offset is too long."""

    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return f"{self.size_bytes} bytes, and offset.metadata.max.bytes is {self.limit_bytes}"


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
class UnsupportedAssignor(InvalidRequest):
    """No assignor of the broker has this name."""

    name: str
    supported: tuple[str, ...]

    def __str__(self) -> str:
        return f"there is no assignor {self.name!r}: use one of {', '.join(self.supported)}"


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
class InvalidTimeout(InvalidRequest):
    """A member asks for a session outside the limits."""

    timeout_ms: int
    minimum_ms: int
    maximum_ms: int

    def __str__(self) -> str:
        return (
            f"a session timeout of {self.timeout_ms} ms: expected {self.minimum_ms} to "
            f"{self.maximum_ms} ms"
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


@dataclass(eq=False, kw_only=True)
class NotFound(MillstreamError):
    """There is no such thing."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"there is no {self.kind} {self.name!r}"


class UnknownTopic(NotFound):
    """There is no such topic or partition."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="topic", name=name)


class UnknownTopicId(NotFound):
    """There is no topic with this id."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(kind="topic with id", name=topic_id.hex())


class UnknownGroup(NotFound):
    """There is no such group."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="group", name=name)


class UnknownMember(NotFound):
    """The group has no such member."""

    def __init__(self, name: str) -> None:
        super().__init__(kind="group member", name=name)


class Conflict(MillstreamError):
    """The state is not what the request took it to be."""


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


@dataclass(eq=False, kw_only=True)
class AlreadyExists(Conflict):
    """The thing to be created is there already."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} exists already"


@dataclass(eq=False, kw_only=True)
class IllegalGeneration(Conflict):
    """The member speaks of a generation that the group is not in."""

    generation: int
    current: int

    def __str__(self) -> str:
        return f"generation {self.generation} is not the group's, which is {self.current}"


@dataclass(eq=False)
class RebalanceInProgress(Conflict):
    """The group is being rebalanced."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} is rebalancing: join it again"


@dataclass(eq=False)
class MemberIdRequired(Conflict):
    """A new member must come back with the id it is given here."""

    member_id: str

    def __str__(self) -> str:
        return f"join again as {self.member_id!r}"


@dataclass(eq=False, kw_only=True)
class InconsistentProtocol(Conflict):
    """The members of the group have no protocol in common with this one."""

    group: str
    reason: str

    def __str__(self) -> str:
        return f"no protocol in common with group {self.group!r}: {self.reason}"


@dataclass(eq=False)
class UnknownLeaderEpoch(Conflict):
    """The client has heard of a leader that this broker knows nothing of."""

    epoch: int

    def __str__(self) -> str:
        return f"leader epoch {self.epoch} is not known here: ask for the metadata again"


@dataclass(eq=False)
class NonEmptyGroup(Conflict):
    """The group has members."""

    group: str

    def __str__(self) -> str:
        return f"group {self.group!r} has members: stop them first"


class SubscribedGroup(NonEmptyGroup):
    """The group has members that read the topic."""


@dataclass(eq=False, kw_only=True)
class Fenced(MillstreamError):
    """A newer epoch owns what the caller thinks is its own."""

    kind: str
    identity: int | str
    epoch: int
    current_epoch: int

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.identity} with epoch {self.epoch} is fenced: "
            f"epoch {self.current_epoch} took over"
        )


class FencedInstance(Fenced):
    """Another member has taken over a static identity."""

    def __init__(self, instance_id: str) -> None:
        super().__init__(kind="static member", identity=instance_id, epoch=-1, current_epoch=-1)

    def __str__(self) -> str:
        return f"static member {self.identity!r} was replaced by another one with its identity"


class FencedMember(Fenced):
    """The member's epoch is neither its current one nor the one before."""

    def __init__(self, *, member_id: str, epoch: int, current_epoch: int) -> None:
        super().__init__(
            kind="member", identity=member_id, epoch=epoch, current_epoch=current_epoch
        )


class StaleMember(FencedMember):
    """The member's epoch is behind; a heartbeat brings it up to date."""


class UnreleasedInstance(FencedInstance):
    """A living member has this static identity."""

    def __str__(self) -> str:
        return f"static member {self.identity!r} is in use by a living member"


class Unavailable(MillstreamError):
    """The request is fine and cannot be served now."""


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
class GroupFull(Unavailable):
    """The group has as many members as it may have."""

    group: str
    limit: int

    def __str__(self) -> str:
        return f"group {self.group!r} has {self.limit} members, and may have no more"


@dataclass(eq=False, kw_only=True)
class TimedOut(Unavailable):
    """It did not happen in the time that the caller would wait."""

    operation: str
    timeout_ms: int

    def __str__(self) -> str:
        return f"{self.operation} took longer than {self.timeout_ms} ms"


@dataclass(eq=False, kw_only=True)
class CorruptData(MillstreamError):
    """Stored bytes are not what was written.

    `next_offset` is the first offset after the damage that can be read.
    """

    path: str
    position: int
    reason: str
    next_offset: int = -1

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}"


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
