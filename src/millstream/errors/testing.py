"""What a test can meet that uses a broker of its own."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import InvalidRequest, Unavailable


class BrokerNotRunning(Unavailable):
    """The broker was not started, or was stopped or killed."""

    def __str__(self) -> str:
        return "the broker is not running: use it in `with Broker() as broker:`, or start() it"


@dataclass(eq=False, kw_only=True)
class NotForThisBroker(InvalidRequest):
    """What was asked for takes a broker of another kind."""

    operation: str
    needs: str

    def __str__(self) -> str:
        return f"{self.operation} needs a Broker with {self.needs}"


@dataclass(eq=False, kw_only=True)
class BrokerProcessFailed(Unavailable):
    """The process of an isolated broker has ended, or has failed at what it was asked."""

    reason: str

    def __str__(self) -> str:
        return f"the process of the broker has failed: {self.reason}; its stderr may say more"
