"""Every error that Millstream raises on purpose, named by what the caller must do.

    MillstreamError
    ├── InvalidRequest           fix the request; sending it again changes nothing
    │   ├── MalformedMessage     the bytes are not the message they should be
    │   ├── UnexpectedProtocol   the listener speaks another protocol than the client
    │   ├── UnsupportedVersion   the API is not announced in this version
    │   ├── InvalidBatch         the bytes are not a record batch we can accept
    │   │   └── ChecksumMismatch they were damaged on the way; send them again
    │   ├── InvalidRecord        the topic takes no record like this one
    │   │   └── InvalidTimestamp it is too far in the past or in the future
    │   ├── MessageTooLarge      a batch, or what it unpacks to, is over the limit
    │   ├── RecordTooLarge       a stored message is larger than a reader may be given
    │   ├── MetadataTooLarge     what comes with a committed offset is over the limit
    │   ├── TooManyElements      the request lists more than the broker takes at once
    │   ├── MemberTooLarge       a group member has more metadata than the broker keeps
    │   ├── BodyTooLarge         the request is larger than a door takes
    │   ├── BodyStalled          the rest of the request did not come in time
    │   ├── UnsupportedMediaType the request is of a kind that a door does not know
    │   ├── UnsupportedCodec     the batch names a compression codec we do not know
    │   ├── UnsupportedAssignor  the group is to be assigned by a rule we do not know
    │   ├── OffsetOutOfRange     the offset is not in the log; seek to one that is
    │   ├── InvalidName          a topic, group or such cannot be called this
    │   ├── InvalidRegex         the regular expression is none, or uses what is not supported
    │   ├── InvalidPartitions    a topic cannot have this many partitions
    │   ├── TooManyTopics        no more topics are created by themselves; create it
    │   ├── InvalidTimeout       a session cannot be this long or short
    │   ├── InvalidTransactionTimeout  a transaction cannot be this long
    │   ├── Superseded           its producer has gone on with a newer connection
    │   ├── ClientClosed         the client was closed; open another
    │   ├── RefusedByBroker      a Kafka broker will not do it
    │   ├── NotForThisBroker     a broker of a test is of a kind that cannot; make another
    │   ├── AuthenticationFailed a Kafka broker does not let the user in
    │   ├── UnsupportedBroker    a Kafka broker is too old or too new for us
    │   ├── InvalidMessageId     no message of the topic has this id
    │   ├── MissingExtra         packages are not installed; install the extra that has them
    │   ├── JavaMissing          Spark needs a Java that is not there
    │   ├── NoTargetTopic        create the topic that Spark is to write to
    │   ├── InvalidOption        an option of a Spark reader or writer cannot have this value
    │   ├── QueryUnnamed         a stream that is written once needs a name
    │   ├── UnknownOption        a Spark reader or writer has no option of this name
    │   ├── InvalidPipeline      a pipeline's file cannot be run; see what is wrong in which line
    │   ├── SparkRefused         Spark cannot be started so; see which setting, or which master
    │   ├── InvalidSetting       a setting has a value that it cannot take
    │   └── InvalidSettings      several have
    ├── NotFound                 there is no such thing; create it or look elsewhere
    │   ├── UnknownTopic         no topic or partition has this name
    │   │   └── UnknownPartition the topic is there, and has fewer partitions
    │   ├── UnknownTopicId       no topic has this id; it may have been deleted
    │   ├── UnknownGroup         no group has this name
    │   ├── UnknownMember        the group has no such member; join again
    │   ├── UnknownTransaction   nobody uses this transactional id
    │   └── UnknownSubscription  the topic has no subscription of this name
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
    │   ├── TransactionLost      the transaction was ended otherwise, or by another
    │   ├── PartlySent           some messages were stored and some refused; see which
    │   ├── SubscriptionConflict the subscription is not what the request takes it for
    │   ├── DataLost             a query should read records that are gone; see which
    │   ├── TableConflict        rows do not fit into a table; change the query
    │   ├── CheckpointLost       a query begins anew over what it wrote; see which
    │   ├── QueryStartedOver     a query brings other rows than it wrote; see which
    │   ├── QueryTakenOver       another driver writes under the query's name; stop one
    │   ├── TransactionExpired   a batch took too long, nothing is written; start again
    │   ├── BatchForgotten       the cluster forgot whether a decided batch was committed; look
    │   ├── BatchTorn            part of a batch timed out after it was decided; see which
    │   ├── NotInFlight          messages were acknowledged, or are delivered again
    │   ├── PipelineBusy         another process runs the pipeline; stop it first
    │   ├── PipelineFailed       one of its queries ended; put its reason right and run it again
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
    │   ├── GroupsFull           groups take as much memory as they may
    │   ├── LimitReached         there are as many of these things as there may be
    │   ├── ConcurrentTransaction  the transaction before is still being ended
    │   ├── UnstableOffset       a transaction may yet change the offset
    │   ├── Unreachable          no broker answers at this address
    │   │   └── HungUp           it has ended the connection; connect again
    │   ├── SparkLost            the process that a pipeline's queries run in has ended
    │   ├── ReadStalled          a partition gives no records where there should be some
    │   ├── BrokerNotReady       a Kafka broker starts, stops, or hands over
    │   ├── BrokerNotRunning     a broker of a test was not started, or was stopped
    │   ├── BrokerProcessFailed  the process of a test's broker has ended
    │   ├── AnswerLost           it may have happened or not; look before you repeat it
    │   └── TimedOut             it took longer than the caller would wait
    ├── CorruptData              stored bytes are damaged; restore them or skip them
    │   ├── RecordsDamaged       some records of a log are; continue behind them
    │   └── StateDamaged         both copies of the broker's own state are; repair them
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
from millstream.errors.clients import AnswerLost, ClientClosed, HungUp, PartlySent, Unreachable
from millstream.errors.groups import (
    FencedInstance,
    FencedMember,
    GroupFull,
    GroupsFull,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidTimeout,
    MemberIdRequired,
    MemberTooLarge,
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
from millstream.errors.kafka import (
    AuthenticationFailed,
    BrokerNotReady,
    RefusedByBroker,
    TransactionLost,
    UnsupportedBroker,
)
from millstream.errors.lake import CheckpointLost, TableConflict
from millstream.errors.pipelines import (
    InvalidPipeline,
    PipelineBusy,
    PipelineFailed,
    SparkLost,
    SparkRefused,
)
from millstream.errors.records import (
    ChecksumMismatch,
    InvalidBatch,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OutOfOrderSequence,
    RecordTooLarge,
    UnsupportedCodec,
)
from millstream.errors.requests import (
    AlreadyExists,
    BodyStalled,
    BodyTooLarge,
    InvalidName,
    InvalidPartitions,
    InvalidRegex,
    InvalidSetting,
    InvalidSettings,
    LimitReached,
    MalformedMessage,
    OffsetOutOfRange,
    TimedOut,
    TooManyElements,
    TooManyTopics,
    UnexpectedProtocol,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
    UnsupportedMediaType,
    UnsupportedVersion,
)
from millstream.errors.spark import (
    DataLost,
    InvalidOption,
    JavaMissing,
    MissingExtra,
    NoTargetTopic,
    ReadStalled,
    UnknownOption,
)
from millstream.errors.spark_sink import (
    BatchForgotten,
    BatchTorn,
    QueryStartedOver,
    QueryTakenOver,
    QueryUnnamed,
    TransactionExpired,
)
from millstream.errors.storage import (
    CorruptData,
    DirectoryLocked,
    DiskFull,
    RecordsDamaged,
    StateDamaged,
    StorageFailure,
    TooManyFiles,
)
from millstream.errors.subscriptions import (
    InvalidMessageId,
    NotInFlight,
    SubscriptionConflict,
    UnknownSubscription,
)
from millstream.errors.testing import BrokerNotRunning, BrokerProcessFailed, NotForThisBroker
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
    "AnswerLost",
    "AuthenticationFailed",
    "BatchForgotten",
    "BatchTorn",
    "BodyStalled",
    "BodyTooLarge",
    "BrokerNotReady",
    "BrokerNotRunning",
    "BrokerProcessFailed",
    "CheckpointLost",
    "ChecksumMismatch",
    "ClientClosed",
    "ConcurrentTransaction",
    "Conflict",
    "CorruptData",
    "DataLost",
    "DirectoryLocked",
    "DiskFull",
    "Fenced",
    "FencedInstance",
    "FencedMember",
    "FencedProducer",
    "GroupFull",
    "GroupsFull",
    "HungUp",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InvalidBatch",
    "InvalidMessageId",
    "InvalidName",
    "InvalidOption",
    "InvalidPartitions",
    "InvalidPipeline",
    "InvalidRecord",
    "InvalidRegex",
    "InvalidRequest",
    "InvalidSetting",
    "InvalidSettings",
    "InvalidTimeout",
    "InvalidTimestamp",
    "InvalidTransactionState",
    "InvalidTransactionTimeout",
    "JavaMissing",
    "LimitReached",
    "NoTargetTopic",
    "MalformedMessage",
    "MemberIdRequired",
    "MemberTooLarge",
    "MessageTooLarge",
    "MetadataTooLarge",
    "MillstreamError",
    "MissingExtra",
    "NonEmptyGroup",
    "NotForThisBroker",
    "NotFound",
    "NotInFlight",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "PartlySent",
    "PipelineBusy",
    "PipelineFailed",
    "QueryStartedOver",
    "QueryTakenOver",
    "QueryUnnamed",
    "ReadStalled",
    "RebalanceInProgress",
    "RecordsDamaged",
    "RecordTooLarge",
    "RefusedByBroker",
    "SparkLost",
    "SparkRefused",
    "StaleMember",
    "StateDamaged",
    "StorageFailure",
    "SubscribedGroup",
    "SubscriptionConflict",
    "Superseded",
    "TableConflict",
    "TimedOut",
    "TooManyElements",
    "TooManyFiles",
    "TooManyTopics",
    "TransactionExpired",
    "TransactionLost",
    "Unavailable",
    "UnexpectedProtocol",
    "UnknownGroup",
    "UnknownLeaderEpoch",
    "UnknownMember",
    "UnknownOption",
    "UnknownPartition",
    "UnknownProducer",
    "UnknownSubscription",
    "UnknownTopic",
    "UnknownTopicId",
    "UnknownTransaction",
    "Unreachable",
    "UnreleasedInstance",
    "UnstableOffset",
    "UnsupportedAssignor",
    "UnsupportedBroker",
    "UnsupportedCodec",
    "UnsupportedMediaType",
    "UnsupportedVersion",
]
