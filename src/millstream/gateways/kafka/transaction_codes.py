"""What clients are told when a transaction refuses something, in codes that their version knows.

Old clients take a code that they do not know for the end of everything. So each API has a version
from which on the newer codes are sent, and an older code that stands for them before.
"""

from __future__ import annotations

from typing import Final

from millstream.errors import (
    ConcurrentTransaction,
    InvalidTransactionState,
    MillstreamError,
    Superseded,
)
from millstream.gateways.kafka.error_codes import ErrorCode, code_of

_NEVER: Final = 0x7FFF
_PRODUCE, _INIT, _ADD_PARTITIONS, _ADD_OFFSETS, _END, _COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28

# By API, the first version whose clients know PRODUCER_FENCED. Those that write were never told.
_FENCED_SINCE: Final = {
    _PRODUCE: _NEVER,
    _INIT: 4,
    _ADD_PARTITIONS: 2,
    _ADD_OFFSETS: 2,
    _END: 2,
    _COMMIT_OFFSETS: _NEVER,
}
# By API, the first version whose clients know TRANSACTION_ABORTABLE (KIP-890).
_ABORTABLE_SINCE: Final = {
    _PRODUCE: 11,
    _INIT: 5,
    _ADD_PARTITIONS: 5,
    _ADD_OFFSETS: 4,
    _END: 4,
    _COMMIT_OFFSETS: 4,
}
# By API that writes, the first version whose clients know that a transaction may still be ending
# when they begin the next, and by what the others are told to try again.
_CONCURRENT_SINCE: Final = {
    _PRODUCE: (12, ErrorCode.NOT_ENOUGH_REPLICAS),
    _COMMIT_OFFSETS: (5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
}


def transaction_code(error: MillstreamError | None, api_key: int, version: int) -> int:
    """The code for an error, in one version of one of the APIs of transactions."""
    code = code_of(error)
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def write_code(error: MillstreamError | None, api_key: int, version: int) -> int:
    """The same for a write that the transaction does not admit: to abort it is enough."""
    if isinstance(error, InvalidTransactionState) and version >= _ABORTABLE_SINCE[api_key]:
        return ErrorCode.TRANSACTION_ABORTABLE
    if isinstance(error, ConcurrentTransaction) and api_key in _CONCURRENT_SINCE:
        since, before = _CONCURRENT_SINCE[api_key]
        return code_of(error) if version >= since else before
    if isinstance(error, Superseded):
        # Not stored: to be tried again, through another connection.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    code = transaction_code(error, api_key, version)
    if api_key == _PRODUCE and code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # It writes to a partition, and knows nothing of coordinators.
        return ErrorCode.KAFKA_STORAGE_ERROR
    return code
