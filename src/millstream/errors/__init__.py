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
    │   ├── InvalidTransactionTimeout  a transaction cannot be this long
    │   ├── Superseded           its producer has gone on with a newer connection
    │   └── InvalidSetting       a setting has a value that it cannot take
    ├── NotFound                 there is no such thing; create it or look elsewhere
    │   ├── UnknownTopic         no topic or partition has this name
    │   ├── UnknownTopicId       no topic has this id; it may have been deleted
    │   ├── UnknownGroup         no group has this name
    │   ├── UnknownMember        the group has no such member; join again
    │   └── UnknownTransaction   nobody uses this transactional id
    ├── Conflict                 the state has moved on; read it again, then decide
    │   ├── OutOfOrderSequence   an idempotent producer left a gap
    │   ├── AlreadyExists        the thing to be created is there
    │   ├── IllegalGeneration    the group has another generation; join again
    │   ├── RebalanceInProgress  the group is rebalancing; join again
    │   ├── MemberIdRequired     join again, with the id that comes with this
    │   ├── InconsistentProtocol the group's members could not agree with this one
    │   ├── UnknownLeaderEpoch   the client has heard of a newer leader than this broker is
    │   ├── UnknownProducer      the transactional id has another producer; initialise again
    │   ├── InvalidTransactionState  the transaction is in no state for this
    │   └── NonEmptyGroup        the group has members; stop them first
    │       └── SubscribedGroup  the group reads the topic; stop it first
    ├── Fenced                   a newer owner took over; stop
    │   ├── FencedInstance       another member took over this static identity
    │   │   └── UnreleasedInstance  it is in use by a living member
    │   ├── FencedProducer       another producer has this transactional id, or it took too long
    │   └── FencedMember         the member's epoch is not its current one; join again
    │       └── StaleMember      it is behind; heartbeat, then try again
    ├── Unavailable              nothing is wrong with the request; try again later
    │   ├── DirectoryLocked      another process holds the data directory
    │   ├── DiskFull             the write did not happen; free space and try again
    │   ├── TooManyFiles         the process may open no more; raise its limit
    │   ├── GroupFull            the group has as many members as it may have
    │   ├── ConcurrentTransaction  the transaction before is still being ended
    │   ├── UnstableOffset       a transaction may yet change the offset
    │   └── TimedOut             it took longer than the caller would wait
    ├── CorruptData              stored bytes are damaged; restore them or skip them
    └── StorageFailure           the disk broke a promise; the partition has stopped

Errors carry data. The message that a person reads is made from it in `__str__`, and
names the thing, the value and what to do.
"""

from __future__ import annotations

from millstream.errors.base import (
    Conflict,
    Fenced,
    InvalidRequest,
    MillstreamError,
    NotFound,
    Unavailable,
)
from millstream.errors.groups import (
    FencedInstance,
    FencedMember,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidTimeout,
    MemberIdRequired,
    MetadataTooLarge,
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMember,
    SubscribedGroup,
    UnknownGroup,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from millstream.errors.records import (
    ChecksumMismatch,
    InvalidBatch,
    InvalidRecord,
    MessageTooLarge,
    OutOfOrderSequence,
    UnsupportedCodec,
)
from millstream.errors.requests import (
    AlreadyExists,
    InvalidName,
    InvalidPartitions,
    InvalidRegex,
    InvalidSetting,
    MalformedMessage,
    OffsetOutOfRange,
    TimedOut,
    UnknownLeaderEpoch,
    UnknownTopic,
    UnknownTopicId,
)
from millstream.errors.storage import (
    CorruptData,
    DirectoryLocked,
    DiskFull,
    StorageFailure,
    TooManyFiles,
)
from millstream.errors.transactions import (
    ConcurrentTransaction,
    FencedProducer,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    Superseded,
    UnknownProducer,
    UnknownTransaction,
    UnstableOffset,
)

__all__ = [
    "AlreadyExists",
    "ChecksumMismatch",
    "ConcurrentTransaction",
    "Conflict",
    "CorruptData",
    "DirectoryLocked",
    "DiskFull",
    "Fenced",
    "FencedInstance",
    "FencedMember",
    "FencedProducer",
    "GroupFull",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InvalidBatch",
    "InvalidName",
    "InvalidPartitions",
    "InvalidRecord",
    "InvalidRegex",
    "InvalidRequest",
    "InvalidSetting",
    "InvalidTimeout",
    "InvalidTransactionState",
    "InvalidTransactionTimeout",
    "MalformedMessage",
    "MemberIdRequired",
    "MessageTooLarge",
    "MetadataTooLarge",
    "MillstreamError",
    "NonEmptyGroup",
    "NotFound",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "RebalanceInProgress",
    "StaleMember",
    "StorageFailure",
    "SubscribedGroup",
    "Superseded",
    "TimedOut",
    "TooManyFiles",
    "Unavailable",
    "UnknownGroup",
    "UnknownLeaderEpoch",
    "UnknownMember",
    "UnknownProducer",
    "UnknownTopic",
    "UnknownTopicId",
    "UnknownTransaction",
    "UnreleasedInstance",
    "UnstableOffset",
    "UnsupportedAssignor",
    "UnsupportedCodec",
]
