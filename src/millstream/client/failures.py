"""Errors that the broker tells of, as the errors that they are.

A program catches `UnknownTopic` or `NotFound` from a client as it would from the broker's own code.
What it reads is the broker's text. An error that this client does not know becomes the branch
of the tree that its status belongs to.

Invariant: whatever a broker tells of becomes an error of the tree.
"""

from __future__ import annotations

import re
from typing import Any

from millstream import errors
from millstream.errors import MillstreamError

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_KINDS: dict[str, type[MillstreamError]] = {
    _WORDS.sub("-", name).lower(): getattr(errors, name)
    for name in errors.__all__
    if name != "MillstreamError"
}
_BY_STATUS: dict[int, type[MillstreamError]] = {
    404: errors.NotFound,
    409: errors.Conflict,
    429: errors.Unavailable,
}
_FIRST_SERVER_STATUS = 500
_NOT_NOW_STATUS = 503


class Told:
    """What an error has when the broker told of it."""

    detail: str
    status: int

    def __str__(self) -> str:
        return self.detail

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.detail!r})"


def is_passing(error: MillstreamError) -> bool:
    """Whether the broker told that it cannot do it now, as one that stops does."""
    is_told = isinstance(error, Told) and error.status == _NOT_NOW_STATUS
    return is_told and isinstance(error, errors.Unavailable)


# The same kinds of errors with the broker's text, made when first told of.
_TOLD: dict[type[MillstreamError], type[MillstreamError]] = {}


def failure_of(problem: dict[str, Any]) -> MillstreamError:
    """The error of which a problem tells. All members of the problem become its attributes."""
    status = int(problem.get("status", _FIRST_SERVER_STATUS))
    name = str(problem.get("type", "")).rpartition(":")[2]
    kind = _told(_KINDS.get(name) or _by_status(status))
    error = kind.__new__(kind)
    told = {field: value for field, value in problem.items() if field not in ("type", "title")}
    error.__dict__.update({"detail": name, **told, "status": status})
    return error


def _told(kind: type[MillstreamError]) -> type[MillstreamError]:
    if kind not in _TOLD:
        _TOLD[kind] = type(kind.__name__, (Told, kind), {"__doc__": kind.__doc__})
    return _TOLD[kind]


def _by_status(status: int) -> type[MillstreamError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return errors.Unavailable if status >= _FIRST_SERVER_STATUS else errors.InvalidRequest
