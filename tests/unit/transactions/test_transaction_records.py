"""What is stored of transactions: round trips, known bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MalformedMessage
from millstream.transactions.transaction import Transaction, TransactionState
from millstream.transactions.transaction_records import decode, encode, tombstone

int64s = st.integers(-(2**63), 2**63 - 1)
epochs = st.integers(-1, 2**15 - 1)
ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
at_rest = [
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]
begun = [state for state in TransactionState if state not in at_rest]


def transactions(
    states: list[TransactionState],
    partitions: st.SearchStrategy[frozenset[tuple[str, int]]],
    data_epochs: st.SearchStrategy[int],
) -> st.SearchStrategy[Transaction]:
    return st.builds(
        Transaction,
        transactional_id=ids,
        producer_id=int64s,
        producer_epoch=epochs,
        previous_epoch=epochs,
        previous_producer_id=int64s,
        next_producer_id=int64s,
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.sampled_from(states),
        partitions=partitions,
        bumps_epoch=st.booleans(),
        data_epoch=data_epochs,
        started_ms=int64s,
        updated_ms=int64s,
    )


partitions = st.frozensets(st.tuples(ids, st.integers(0, 2**31 - 1)))
any_transactions = transactions(at_rest, st.just(frozenset()), st.just(-1)) | transactions(
    begun, partitions, st.integers(0, 2**15 - 1)
)

KEY = bytes.fromhex("0000 0003 747861")
ONGOING = Transaction(
    transactional_id="txa",
    producer_id=7,
    producer_epoch=5,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({("a", 1), ("a", 0), ("b", 2)}),
    bumps_epoch=True,
    data_epoch=5,
    started_ms=256,
    updated_ms=257,
)
ONGOING_VALUE = bytes.fromhex(
    "0001"  # version
    "0000000000000007 0005 0000ea60 01"  # producer, its epoch, timeout, status
    "03 02 61 03 00000000 00000001 00  02 62 02 00000002 00"  # partitions by topic
    "0000000000000101 0000000000000100"  # last update, start
    "02  02 02 0002  914e 02 0005"  # tags: the client's version, the epoch of the records
)


@given(any_transactions)
def test_transaction_survives_being_written(transaction: Transaction) -> None:
    assert decode(*encode(transaction)) == (transaction.transactional_id, transaction)


def test_bytes_are_those_of_the_format() -> None:
    assert encode(ONGOING) == (KEY, ONGOING_VALUE)
    assert decode(KEY, ONGOING_VALUE) == ("txa", ONGOING)


def test_tombstone_says_that_nothing_is_known() -> None:
    assert tombstone("txa") == (KEY, None)
    assert decode(*tombstone("txa")) == ("txa", None)


def test_oldest_version_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0005 0000ea60 02"
        "00000001 0001 61 00000001 00000003"
        "0000000000000101 0000000000000100"
    )
    assert decode(KEY, value) == (
        "txa",
        Transaction(
            transactional_id="txa",
            producer_id=7,
            producer_epoch=5,
            timeout_ms=60_000,
            state=TransactionState.PREPARE_COMMIT,
            partitions=frozenset({("a", 3)}),
            data_epoch=5,
            started_ms=256,
            updated_ms=257,
        ),
    )


@pytest.mark.parametrize(("status", "data_epoch"), [(0, -1), (1, 5), (2, 4), (3, 4), (4, -1)])
def test_epoch_of_the_records_is_found_where_it_is_not_told(status: int, data_epoch: int) -> None:
    value = bytes.fromhex(
        f"0001 0000000000000007 0005 0000ea60 {status:02x} 01"
        "0000000000000101 0000000000000100 01 02 02 0002"
    )
    decoded = decode(KEY, value)
    assert decoded is not None
    assert decoded[1] is not None
    assert decoded[1].data_epoch == data_epoch


def test_key_of_another_kind_is_passed_over() -> None:
    assert decode(bytes.fromhex("0001 0003 747861"), b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (KEY[:-1], None),
        (KEY, b"\0"),
        (KEY, b"\0\2" + ONGOING_VALUE[2:]),
        (KEY, ONGOING_VALUE[:-1]),
        (KEY, ONGOING_VALUE[:16] + b"\6" + ONGOING_VALUE[17:]),
    ],
)
def test_other_bytes_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode(key, value)
