"""What transactions refuse, and why."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict, Fenced, InvalidRequest, NotFound, Unavailable


@dataclass(eq=False, kw_only=True)
class InvalidTransactionTimeout(InvalidRequest):
    """A producer asks for more time than a transaction may take."""

    timeout_ms: int
    maximum_ms: int

    def __str__(self) -> str:
        return (
            f"a transaction timeout of {self.timeout_ms} ms: expected 1 to {self.maximum_ms} ms, "
            "which is transaction.max.timeout.ms"
        )


@dataclass(eq=False)
class Superseded(InvalidRequest):
    """A producer speaks through a connection that it has given up, as far as can be known."""

    transactional_id: str

    def __str__(self) -> str:
        return (
            f"transactional id {self.transactional_id!r} has used a newer connection since, "
            "or aborted through another one"
        )


class UnknownTransaction(NotFound):
    """There is no such transactional id."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(kind="transactional id", name=transactional_id)


@dataclass(eq=False, kw_only=True)
class UnknownProducer(Conflict):
    """The producer id is not the one that a transactional id stands for."""

    transactional_id: str
    producer_id: int

    def __str__(self) -> str:
        return (
            f"producer {self.producer_id} is not the one of transactional id "
            f"{self.transactional_id!r}: initialise transactions again"
        )


@dataclass(eq=False, kw_only=True)
class InvalidTransactionState(Conflict):
    """The transaction is not in a state in which this can be done."""

    identity: int | str
    """A transactional id, or a producer's id."""
    state: str
    operation: str

    def __str__(self) -> str:
        return f"{self.identity!r} cannot {self.operation}: its transaction is {self.state}"


class FencedProducer(Fenced):
    """A newer producer uses the transactional id, or the broker ended the transaction."""

    def __init__(self, transactional_id: str, *, epoch: int, current_epoch: int) -> None:
        super().__init__(
            kind="transactional producer",
            identity=transactional_id,
            epoch=epoch,
            current_epoch=current_epoch,
        )


@dataclass(eq=False)
class ConcurrentTransaction(Unavailable):
    """The transaction before this one is still being ended."""

    transactional_id: str

    def __str__(self) -> str:
        return f"the last transaction of {self.transactional_id!r} is still being ended: try again"


@dataclass(eq=False, kw_only=True)
class UnstableOffset(Unavailable):
    """A transaction that is under way may yet change a committed offset."""

    group_id: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return (
            f"the offset of group {self.group_id!r} in {self.topic}/{self.partition} is part of a "
            "transaction that has not ended: try again"
        )
