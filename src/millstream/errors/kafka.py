"""What a client of a Kafka broker, ours or another, can meet."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, Unavailable


@dataclass(eq=False, kw_only=True)
class RefusedByBroker(InvalidRequest):
    """A broker will not do it, however often it is asked."""

    operation: str
    code: int
    name: str
    """Kafka's name for the code."""
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"the broker refuses {self.operation} with {self.name} ({self.code}){detail}"


@dataclass(eq=False, kw_only=True)
class BrokerNotReady(Unavailable):
    """A broker cannot do it now: it starts, stops, or hands over to another."""

    operation: str
    code: int
    name: str
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return (
            f"no broker could do {self.operation} in time, the last answer was "
            f"{self.name} ({self.code}){detail}: try again later"
        )


@dataclass(eq=False, kw_only=True)
class AuthenticationFailed(InvalidRequest):
    """A broker does not let this user in, or is not the one that it says it is."""

    address: str
    mechanism: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the broker at {self.address} and this client do not trust each other by "
            f"{self.mechanism}: {self.reason}"
        )


@dataclass(eq=False, kw_only=True)
class UnsupportedBroker(InvalidRequest):
    """A broker speaks no version of a request that we do."""

    address: str
    api: str
    ours: tuple[int, int]
    theirs: tuple[int, int] | None

    def __str__(self) -> str:
        theirs = f"has versions {self.theirs[0]} to {self.theirs[1]}" if self.theirs else "has none"
        return (
            f"the broker at {self.address} {theirs} of {self.api}, and versions {self.ours[0]} to "
            f"{self.ours[1]} are needed: use a broker of another version"
        )


@dataclass(eq=False, kw_only=True)
class TransactionLost(Conflict):
    """The transaction is not, or cannot be known to be, what its producer wants it to be."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.transactional_id!r} (producer {self.producer_id}, epoch {self.producer_epoch}) "
            f"cannot {self.operation}: {self.reason}"
        )
