"""The branches of the tree: what the caller must do."""

from __future__ import annotations

from dataclasses import dataclass


class MillstreamError(Exception):
    """Base of the tree. Never raised itself."""


class InvalidRequest(MillstreamError):
    """The request cannot be carried out as it stands."""


@dataclass(eq=False, kw_only=True)
class NotFound(MillstreamError):
    """There is no such thing."""

    kind: str
    name: str
    hint: str = ""
    """What may have been meant, or where to look."""

    def __str__(self) -> str:
        hint = f": {self.hint}" if self.hint else ""
        return f"there is no {self.kind} {self.name!r}{hint}"


class Conflict(MillstreamError):
    """The state is not what the request took it to be."""


@dataclass(eq=False, kw_only=True)
class Fenced(MillstreamError):
    """A newer epoch owns what the caller thinks is its own."""

    kind: str
    identity: int | str
    epoch: int
    current_epoch: int

    def __str__(self) -> str:
        return (
            f"{self.kind} {self.identity} with epoch {self.epoch} is fenced: "
            f"epoch {self.current_epoch} took over"
        )


class Unavailable(MillstreamError):
    """The request is fine and cannot be served now."""
