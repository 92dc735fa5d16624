"""Transactions through the door, in every version: who may do what, and what they are told.

What is expected here is what Apache Kafka 4.3 answers to the same requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
)
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.records import Record, build
from millstream.transactions.transaction import TransactionState
from tests.fakes.committed_reader import CommittedReader
from tests.fakes.open_door import OpenDoor, open_door, run
from tests.fakes.sample_batches import START_MS, batch_of, values_of
from tests.fakes.transactional_producer import TransactionalProducer
from tests.fakes.wire_client import produce_request

FIRST, SECOND, BEYOND = ("t", 0), ("t", 1), ("t", 9)
FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING

Scene = Callable[[OpenDoor, TransactionalProducer], Coroutine[Any, Any, None]]


def play(path: Path, scene: Scene) -> None:
    """A topic of two partitions, and a producer that has not begun."""

    async def main() -> None:
        async with open_door(path) as opened:
            await opened.topic("t", partitions=2)
            await scene(opened, TransactionalProducer(await opened.connect()))

    run(main())


def versions(handler: ModuleType) -> pytest.MarkDecorator:
    oldest, newest = handler.VERSIONS
    return pytest.mark.parametrize("version", range(oldest, newest + 1))


def state_of(opened: OpenDoor) -> TransactionState:
    return opened.broker.transactions.registry.describe("tx").state


@versions(init_producer_id)
def test_every_init_gives_the_next_epoch_of_one_producer_id(version: int, tmp_path: Path) -> None:
    async def scene(_: OpenDoor, producer: TransactionalProducer) -> None:
        code, producer_id, epoch = await producer.init(version)
        assert (code, epoch) == (0, 0)
        assert await producer.init(version) == (0, producer_id, 1)
        other = await producer.init(version, transactional_id="other")
        assert other[0] == 0
        assert other[1] != producer_id

    play(tmp_path, scene)


@versions(init_producer_id)
def test_init_with_what_cannot_be_is_refused(version: int, tmp_path: Path) -> None:
    async def scene(_: OpenDoor, producer: TransactionalProducer) -> None:
        for timeout_ms in (0, -1, 900_001):
            refused = await producer.init(version, transaction_timeout_ms=timeout_ms)
            assert refused == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        invalid = (ErrorCode.INVALID_REQUEST, -1, -1)
        assert await producer.init(version, transactional_id="") == invalid
        if version >= 2:  # A name that no record can hold.
            assert await producer.init(version, transactional_id="x" * 32_768) == invalid
        if version >= 3:
            assert await producer.init(version, producer_id=5, producer_epoch=-1) == invalid
            assert await producer.init(version, producer_id=-1, producer_epoch=5) == invalid

    play(tmp_path, scene)


@pytest.mark.parametrize(("version", "code"), [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
def test_init_of_a_fenced_producer_is_refused(version: int, code: int, tmp_path: Path) -> None:
    async def scene(_door: OpenDoor, producer: TransactionalProducer) -> None:
        _, producer_id, _ = await producer.init()
        for fields in (
            {"producer_id": producer_id, "producer_epoch": 30},
            {"producer_id": producer_id + 777, "producer_epoch": 0},
        ):
            assert await producer.init(version, **fields) == (code, -1, -1)
        # The one that knows its epoch gets the next.
        assert await producer.init(version, producer_id=producer_id, producer_epoch=0) == (
            0,
            producer_id,
            1,
        )

    play(tmp_path, scene)


def test_producer_without_transactional_id_never_gets_the_id_that_it_names(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        _, producer_id, epoch = await producer.init()
        client = await opened.connect()
        request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        answer = await client.ask(request, 5)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id != producer_id

    play(tmp_path, scene)


@versions(add_partitions_to_txn)
def test_partitions_are_added(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        assert await producer.add(version=version) == {}
        assert state_of(opened) is TransactionState.EMPTY
        for _ in range(2):
            assert await producer.add(FIRST, SECOND, version=version) == {FIRST: 0, SECOND: 0}
        transaction = opened.broker.transactions.registry.describe("tx")
        assert transaction.state is TransactionState.ONGOING
        assert transaction.partitions == {FIRST, SECOND}

    play(tmp_path, scene)


@versions(add_partitions_to_txn)
@pytest.mark.parametrize(
    ("place", "code"),
    [
        (BEYOND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("none", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("__consumer_offsets", 0), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (("__transaction_state", 0), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_one_partition_that_is_refused_keeps_out_all(
    version: int, place: tuple[str, int], code: int, tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        told = await producer.add(FIRST, place, version=version)
        assert told == {FIRST: ErrorCode.OPERATION_NOT_ATTEMPTED, place: code}
        assert state_of(opened) is TransactionState.EMPTY

    play(tmp_path, scene)


@versions(add_partitions_to_txn)
def test_partitions_of_a_stranger_are_not_added(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        _, producer_id, epoch = await producer.init()

        async def code(**fields: Any) -> int:
            told = await producer.add(FIRST, version=version, **fields)
            return told[FIRST]

        assert await code(transactional_id="") == ErrorCode.INVALID_REQUEST
        assert await code(transactional_id="nobody") == UNKNOWN
        assert await code(producer_id=producer_id + 50) == UNKNOWN
        fenced = FENCED if version >= 2 else OLD_FENCED
        assert await code(producer_epoch=epoch - 1) == fenced
        assert await code(producer_epoch=epoch + 1) == fenced
        assert state_of(opened) is TransactionState.EMPTY

    play(tmp_path, scene)


@pytest.mark.parametrize("version", [4, 5])
def test_many_transactions_are_added_to_at_once(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        other = TransactionalProducer(await opened.connect(), "other")
        said = []
        for each in (producer, other):
            _, producer_id, epoch = await each.init()
            said.append(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                }
            )
        # A connection is heard for one producer only if it is not an old one of it.
        third = TransactionalProducer(await opened.connect())
        told = await third.add_many([(said[0], [FIRST]), (said[1], [BEYOND])], version=version)
        assert told == {
            "tx": {FIRST: 0},
            "other": {BEYOND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        }

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_question_whether_partitions_are_added_adds_none(
    version: int, code: int, tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        async def ask(**fields: Any) -> dict[tuple[str, int], int]:
            return await producer.add(FIRST, SECOND, version=version, verify_only=True, **fields)

        await producer.init()
        assert await ask() == {FIRST: code, SECOND: code}
        await producer.add(FIRST)
        assert await ask() == {FIRST: 0, SECOND: code}
        assert opened.broker.transactions.registry.describe("tx").partitions == {FIRST}
        assert set((await ask(transactional_id="nobody")).values()) == {UNKNOWN}
        assert set((await ask(transactional_id="")).values()) == {ErrorCode.INVALID_REQUEST}
        assert set((await ask(producer_epoch=producer.epoch - 1)).values()) == {FENCED}

    play(tmp_path, scene)


@versions(add_offsets_to_txn)
def test_offsets_are_added(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        _, producer_id, epoch = await producer.init()
        assert await producer.add_offsets(version, transactional_id="") == 42
        assert await producer.add_offsets(version, transactional_id="nobody") == UNKNOWN
        assert await producer.add_offsets(version, producer_id=producer_id + 1) == UNKNOWN
        fenced = FENCED if version >= 2 else OLD_FENCED
        assert await producer.add_offsets(version, producer_epoch=epoch - 1) == fenced
        assert state_of(opened) is TransactionState.EMPTY
        assert await producer.add_offsets(version) == 0
        added = opened.broker.transactions.registry.describe("tx").partitions
        assert added == {("__consumer_offsets", 0)}

    play(tmp_path, scene)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_end_keeps_the_epoch_for_old_clients(version: int, committed: bool, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        _, _, epoch = await producer.init()
        done = TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT
        for _ in range(2):
            assert await producer.add(FIRST) == {FIRST: 0}
            for _ in range(2):  # The second time, the answer was lost.
                assert (await producer.end(version, committed=committed))[0] == 0
                assert state_of(opened) is done
            code, *_ = await producer.end(version, committed=not committed)
            assert code == ErrorCode.INVALID_TXN_STATE
        assert producer.epoch == epoch

    play(tmp_path, scene)


@pytest.mark.parametrize("committed", [True, False])
def test_end_gives_the_next_epoch_to_new_clients(committed: bool, tmp_path: Path) -> None:
    async def scene(_door: OpenDoor, producer: TransactionalProducer) -> None:
        _, producer_id, epoch = await producer.init()
        await producer.add(FIRST)
        next_epoch = (0, producer_id, epoch + 1)
        assert await producer.end(committed=committed) == next_epoch
        again = {"producer_epoch": epoch}
        assert await producer.end(committed=committed, **again) == next_epoch
        refused = (ErrorCode.INVALID_TXN_STATE, -1, -1)
        assert await producer.end(committed=not committed, **again) == refused
        # Nothing has been written since: that can be aborted, but not committed.
        assert await producer.end(committed=True) == refused
        assert await producer.end(committed=False) == (0, producer_id, epoch + 2)

    play(tmp_path, scene)


@versions(end_txn)
def test_end_by_a_stranger_is_refused(version: int, tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        _, producer_id, epoch = await producer.init()
        await producer.add(FIRST)
        invalid = ErrorCode.INVALID_REQUEST
        fenced = FENCED if version >= 2 else OLD_FENCED
        for fields, code in (
            ({"transactional_id": ""}, invalid),
            ({"transactional_id": "nobody"}, UNKNOWN),
            ({"producer_id": producer_id + 40}, UNKNOWN),
            ({"producer_epoch": epoch - 1}, fenced),
        ):
            assert await producer.end(version, **fields) == (code, -1, -1)
        assert state_of(opened) is TransactionState.ONGOING

    play(tmp_path, scene)


@pytest.mark.parametrize(
    "late",
    [
        lambda producer: producer.init(),
        lambda producer: producer.init(producer_id=producer.producer_id, producer_epoch=0),
        lambda producer: producer.add(SECOND),
        lambda producer: producer.add(SECOND, version=5),
        lambda producer: producer.add_offsets(),
        lambda producer: producer.end(),
    ],
)
def test_request_through_a_connection_that_was_given_up_ends_that_connection(
    late: Callable[[TransactionalProducer], Coroutine[Any, Any, object]], tmp_path: Path
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await producer.init()
        newer = TransactionalProducer(await opened.connect())
        newer.producer_id, newer.epoch = producer.producer_id, producer.epoch
        assert await newer.add(FIRST) == {FIRST: 0}
        with pytest.raises(asyncio.IncompleteReadError):
            await late(producer)
        assert state_of(opened) is TransactionState.ONGOING
        assert (await newer.end())[0] == 0

    play(tmp_path, scene)


def test_write_that_an_old_client_gave_up_is_not_part_of_its_next_transaction(
    tmp_path: Path,
) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        async def other_connection() -> TransactionalProducer:
            other = TransactionalProducer(await opened.connect())
            other.producer_id, other.epoch = producer.producer_id, producer.epoch
            other.sequences = dict(producer.sequences)
            return other

        await producer.init(version=3)
        used = await other_connection()
        assert await producer.add(FIRST) == {FIRST: 0}
        assert await used.write("t", b"aborted", version=11) == 0
        producer.sequences = used.sequences
        # The next write is under way, through a connection that has not been heard of.
        slow = await other_connection()
        assert (await producer.end(version=3, committed=False))[0] == 0
        assert await producer.add(FIRST) == {FIRST: 0}
        assert await slow.write("t", b"late", version=11) == 0
        # One that is older than what was heard of is late for sure.
        code = await used.write("t", b"late", version=11)
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(asyncio.IncompleteReadError):
            await used.write("t", b"late", version=11)
        # The client's own write comes through another connection: now one is known to be late.
        newest = await other_connection()
        assert await newest.write("t", b"next", version=9) == ErrorCode.INVALID_TXN_STATE
        assert await newest.write("t", b"next", version=11) == ErrorCode.TRANSACTION_ABORTABLE
        assert (await producer.end(version=3))[0] == ErrorCode.INVALID_TXN_STATE
        assert (await producer.end(version=3, committed=False))[0] == 0
        assert await producer.add(FIRST) == {FIRST: 0}
        newest.sequences = dict(slow.sequences)
        assert await newest.write("t", b"again", version=11) == 0
        assert (await producer.end(version=3))[0] == 0
        log = opened.broker.topics.partition("t", 0).log
        records = [record.value for record in CommittedReader(log).read_all()]
        assert records == [b"again"]

    play(tmp_path, scene)


def test_what_came_with_a_write_that_is_too_late_is_stored_where_it_belongs(tmp_path: Path) -> None:
    async def scene(opened: OpenDoor, producer: TransactionalProducer) -> None:
        await opened.topic("public")
        await opened.topic("secret")
        await producer.init()
        older = await opened.connect()
        newer = TransactionalProducer(await opened.connect())
        newer.producer_id, newer.epoch = producer.producer_id, producer.epoch
        assert await newer.write("t", b"first") == 0
        late = build(
            [Record(0, START_MS, None, b"late")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=1,
            transactional=True,
        )
        both = produce_request(
            "public", batch_of(b"p" * 50), acks=-1, transactional_id=producer.transactional_id
        )
        both.topic_data = [*both.topic_data, *produce_request("t", late).topic_data]
        with pytest.raises(asyncio.IncompleteReadError):
            await older.ask(both, 12)
        await (await opened.connect()).produce("secret", batch_of(b"s" * 50))
        log = opened.broker.topics.partition("public", 0).log
        assert values_of(log) == [b"p" * 50]
        assert values_of(opened.broker.topics.partition("t", 0).log) == [b"first"]

    play(tmp_path, scene)
