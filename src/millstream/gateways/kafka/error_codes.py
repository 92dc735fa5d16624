"""Kafka's error codes, and which one each of our errors becomes on the wire.

The table is complete: a test walks the tree of errors. An error without a row of its own is told by
the nearest class above it.
"""

from __future__ import annotations

from enum import IntEnum

from millstream import errors
from millstream.errors import MillstreamError


class ErrorCode(IntEnum):
    """The codes that we send, by Kafka's names."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    TOPIC_DELETION_DISABLED = 73
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


_CODES: dict[type[MillstreamError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.MalformedMessage: ErrorCode.INVALID_REQUEST,
    errors.TooManyElements: ErrorCode.INVALID_REQUEST,
    errors.MemberTooLarge: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.ChecksumMismatch: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.MetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.InvalidRegex: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.TooManyTopics: ErrorCode.POLICY_VIOLATION,
    errors.InvalidTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.InvalidSetting: ErrorCode.INVALID_CONFIG,
    errors.NotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.UnknownTransaction: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.Conflict: ErrorCode.INVALID_REQUEST,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.AlreadyExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.UnknownProducer: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.NonEmptyGroup: ErrorCode.NON_EMPTY_GROUP,
    errors.SubscribedGroup: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.Fenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.FencedProducer: ErrorCode.PRODUCER_FENCED,
    errors.FencedMember: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMember: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.Unavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.DirectoryLocked: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DiskFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.TooManyFiles: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupsFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.LimitReached: ErrorCode.POLICY_VIOLATION,
    errors.ConcurrentTransaction: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.UnstableOffset: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.TimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.CorruptData: ErrorCode.CORRUPT_MESSAGE,
    errors.StorageFailure: ErrorCode.KAFKA_STORAGE_ERROR,
}

# Kafka has one code for each kind of thing that can have a bad name.
_BAD_NAMES = {"topic": ErrorCode.INVALID_TOPIC_EXCEPTION, "group": ErrorCode.INVALID_GROUP_ID}


def code_of(error: MillstreamError | None) -> int:
    """The code that tells a client of an error; 0 for none."""
    if error is None:
        return ErrorCode.NONE
    if isinstance(error, errors.InvalidName):
        return _BAD_NAMES.get(error.kind, ErrorCode.INVALID_REQUEST)
    if isinstance(error, errors.RefusedByBroker):
        return error.code
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
