"""Codes of transactions: new ones for new clients, and old ones for the rest."""

from __future__ import annotations

import pytest

from millstream.errors import (
    ConcurrentTransaction,
    Fenced,
    FencedProducer,
    InvalidTransactionState,
    MillstreamError,
    Superseded,
    Unavailable,
    UnknownProducer,
)
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.transaction_codes import transaction_code, write_code

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT_OFFSETS = 0, 22, 24, 25, 26, 28

FENCED = FencedProducer("tx", epoch=1, current_epoch=2)
INVALID = InvalidTransactionState(identity="tx", state="Empty", operation="write")


@pytest.mark.parametrize(
    ("api_key", "since"), [(INIT, 4), (ADD_PARTITIONS, 2), (ADD_OFFSETS, 2), (END, 2)]
)
def test_fenced_producer_is_told_so_from_one_version_on(api_key: int, since: int) -> None:
    assert transaction_code(FENCED, api_key, since) == ErrorCode.PRODUCER_FENCED
    assert transaction_code(FENCED, api_key, since - 1) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("api_key", "newest"), [(PRODUCE, 13), (COMMIT_OFFSETS, 5)])
def test_fenced_writer_is_told_by_the_old_code(api_key: int, newest: int) -> None:
    for version in range(newest + 1):
        assert write_code(FENCED, api_key, version) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("api_key", "since"),
    [
        (PRODUCE, 11),
        (INIT, 5),
        (ADD_PARTITIONS, 5),
        (ADD_OFFSETS, 4),
        (END, 4),
        (COMMIT_OFFSETS, 4),
    ],
)
def test_what_an_abort_mends_is_told_from_one_version_on(api_key: int, since: int) -> None:
    # A write that is not admitted is mended so; any other request is not.
    assert write_code(INVALID, api_key, since) == ErrorCode.TRANSACTION_ABORTABLE
    assert write_code(INVALID, api_key, since - 1) == ErrorCode.INVALID_TXN_STATE
    assert transaction_code(INVALID, api_key, since) == ErrorCode.INVALID_TXN_STATE


def test_write_through_a_connection_that_was_given_up_is_to_be_sent_again() -> None:
    assert write_code(Superseded("tx"), PRODUCE, 9) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("api_key", "since", "before"),
    [
        (PRODUCE, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (COMMIT_OFFSETS, 5, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_writer_that_comes_too_early_is_told_to_come_again(
    api_key: int, since: int, before: ErrorCode
) -> None:
    error = ConcurrentTransaction("tx")
    assert write_code(error, api_key, since) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert write_code(error, api_key, since - 1) == before
    for other in (INIT, ADD_PARTITIONS, ADD_OFFSETS, END):
        assert transaction_code(error, other, 0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert write_code(error, ADD_PARTITIONS, 5) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_writer_whose_transaction_cannot_be_stored_is_told_of_storage() -> None:
    assert write_code(Unavailable(), PRODUCE, 13) == ErrorCode.KAFKA_STORAGE_ERROR
    assert write_code(Unavailable(), COMMIT_OFFSETS, 5) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, ErrorCode.NONE),
        (
            UnknownProducer(transactional_id="tx", producer_id=1),
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        (
            Fenced(kind="producer", identity=1, epoch=0, current_epoch=1),
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
    ],
)
def test_other_errors_have_one_code(error: MillstreamError | None, code: ErrorCode) -> None:
    for version in range(6):
        assert transaction_code(error, END, version) == code
        assert write_code(error, COMMIT_OFFSETS, version) == code
