"""What a client of the broker can meet on its own side of the connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, MillstreamError, Unavailable


@dataclass(eq=False, kw_only=True)
class Unreachable(Unavailable):
    """Nobody who speaks our protocol answers at an address."""

    address: str
    reason: str

    def __str__(self) -> str:
        return (
            f"no broker answers at {self.address} ({self.reason}): start one with "
            f"`millstream serve`, or give the address that it printed"
        )


@dataclass(eq=False, kw_only=True)
class HungUp(Unreachable):
    """The broker has ended a connection before it had taken all that was sent over it."""

    def __str__(self) -> str:
        return (
            f"the broker at {self.address} has hung up ({self.reason}): what was sent last may not "
            f"be stored; the broker's log says why"
        )


@dataclass(eq=False, kw_only=True)
class AnswerLost(Unavailable):
    """The connection broke between a request and its answer."""

    operation: str

    def __str__(self) -> str:
        return (
            f"the connection broke before {self.operation} was answered: "
            f"it may have happened or not; look before you repeat it"
        )


@dataclass(eq=False, kw_only=True)
class ClientClosed(InvalidRequest):
    """What was asked for needs a client that is open."""

    what: str

    def __str__(self) -> str:
        return f"the {self.what} is closed: open a new one"


@dataclass(eq=False, kw_only=True)
class PartlySent(Conflict):
    """Of messages that were sent together, some were refused; the others are stored."""

    topic: str
    results: Sequence[object]
    """One for each message, in order: where it was stored, or the error."""

    def __str__(self) -> str:
        refused = [each for each in self.results if isinstance(each, MillstreamError)]
        return (
            f"{len(refused)} of {len(self.results)} messages to topic {self.topic!r} were "
            f"refused, the first of them because {refused[0]}: see results for each"
        )
