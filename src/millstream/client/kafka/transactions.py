"""Transactions that one process begins and another may end.

Epochs change only when a producer is initialised, never at an end, so that who knows a
transaction's producer id and epoch can end it, however often, from anywhere.

Invariant: `end` returns only when the transaction was ended as asked. Whatever else became of it
is a TransactionLost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from millstream.client.kafka.brokers import TRANSACTION, Brokers
from millstream.client.kafka.connection import Answer
from millstream.client.kafka.error_codes import (
    INVALID_TXN_STATE,
    LOST_TRANSACTION,
    TRANSACTIONAL_ID_NOT_FOUND,
    check,
)
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.client.kafka.places import Place, by_topic
from millstream.errors import TransactionLost
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from millstream.protocol.notation import Struct


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """What the coordinator knows of a transactional id."""

    state: str
    """Empty, Ongoing, PrepareCommit, CompleteCommit, PrepareAbort, CompleteAbort and so on."""
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    """-1 where none is ongoing."""
    places: frozenset[Place]

    def is_empty_for(self, identity: ProducerIdentity) -> bool:
        """Whether a producer has done nothing since it was initialised."""
        mine = self.producer_id, self.producer_epoch
        return self.state == "Empty" and mine == identity


class Transactions:
    """What can be asked of the coordinators of a cluster."""

    def __init__(self, brokers: Brokers, persistence: Persistence) -> None:
        self._brokers = brokers
        self._persistence = persistence

    def init(self, transactional_id: str, timeout_ms: int) -> ProducerIdentity:
        """An identity that fences all others with this id; what they left ongoing is aborted."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        what = f"initialising {transactional_id!r} with a timeout of {timeout_ms} ms"

        def attempt(patience: Patience) -> ProducerIdentity:
            answer = self._ask(transactional_id, request, InitProducerIdResponse, patience)
            check(answer.error_code, what)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return self._persistence.run(attempt)

    def identity(self) -> ProducerIdentity:
        """For a producer without transactions, whose repeated batches are stored once."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)

        def attempt(patience: Patience) -> ProducerIdentity:
            answer = self._brokers.ask_any(request, InitProducerIdResponse, patience)
            check(answer.error_code, "asking for a producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return self._persistence.run(attempt)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Iterable[Place],
    ) -> None:
        """Let partitions take part; the transaction begins with the first. Before writing to them.

        Raises TransactionLost.
        """
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic(places).items()
            ],
        )
        identity = ProducerIdentity(producer_id, producer_epoch)

        def attempt(patience: Patience) -> None:
            answer = self._ask(transactional_id, request, AddPartitionsToTxnResponse, patience)
            codes = {
                (topic.name, each.partition_index): each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            # Those without a fault are told that they were not tried.
            faults = {place: code for place, code in codes.items() if code != _NOT_ATTEMPTED}
            for (topic, partition), code in (faults or codes).items():
                _check(code, transactional_id, identity, f"take in {topic}/{partition}")

        self._persistence.run(attempt)

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """Commit or abort; again, if it was done before. Raises TransactionLost.

        What never began can be aborted, and not committed.
        """
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        identity = ProducerIdentity(producer_id, producer_epoch)
        what = "be committed" if commit else "be aborted"

        def attempt(patience: Patience) -> None:
            answer = self._ask(transactional_id, request, EndTxnResponse, patience)
            if answer.error_code == INVALID_TXN_STATE and not commit:
                described = self.describe(transactional_id)
                if described is not None and described.is_empty_for(identity):
                    return
            _check(answer.error_code, transactional_id, identity, what)

        self._persistence.run(attempt)

    def state(self, transactional_id: str) -> str | None:
        """Kafka's name for the state of a transactional id; None for one that nobody uses."""
        described = self.describe(transactional_id)
        return None if described is None else described.state

    def describe(self, transactional_id: str) -> TransactionDescription | None:
        """None for an id that nobody uses."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        def attempt(patience: Patience) -> TransactionDescription | None:
            answer = self._ask(transactional_id, request, DescribeTransactionsResponse, patience)
            [told] = answer.transaction_states
            if told.error_code == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            check(told.error_code, f"describing {transactional_id!r}")
            return TransactionDescription(
                state=told.transaction_state,
                producer_id=told.producer_id,
                producer_epoch=told.producer_epoch,
                timeout_ms=told.transaction_timeout_ms,
                started_ms=told.transaction_start_time_ms,
                places=frozenset(
                    (topic.topic, partition)
                    for topic in told.topics
                    for partition in topic.partitions
                ),
            )

        return self._persistence.run(attempt)

    def ongoing(self, prefix: str) -> list[str]:
        """The transactional ids that begin so and have a transaction under way, at any broker."""
        request = ListTransactionsRequest(state_filters=["Ongoing"])

        def attempt(patience: Patience) -> list[str]:
            found = set()
            for address in self._brokers.everyone(patience):
                answer = self._brokers.ask(
                    address, request, ListTransactionsResponse, patience.left_s
                )
                check(answer.error_code, "listing transactions")
                found |= {each.transactional_id for each in answer.transaction_states}
            return sorted(each for each in found if each.startswith(prefix))

        return self._persistence.run(attempt)

    def _ask(
        self, transactional_id: str, request: Struct, answer: type[Answer], patience: Patience
    ) -> Answer:
        address = self._brokers.coordinator(TRANSACTION, transactional_id, patience)
        return self._brokers.ask(address, request, answer, patience.left_s)


def _check(code: int, transactional_id: str, identity: ProducerIdentity, what: str) -> None:
    if code in LOST_TRANSACTION:
        raise TransactionLost(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            operation=what,
            reason=LOST_TRANSACTION[code],
        )
    check(code, f"letting {transactional_id!r} {what}")


_NOT_ATTEMPTED = 55
