"""The only place that asks the operating system for randomness.

Everything else is given its ids, so that tests and the simulation decide them.
"""

from __future__ import annotations

import os

_ID_BYTES = 16


def new_id() -> bytes:
    """16 bytes that nobody had before."""
    return os.urandom(_ID_BYTES)


def new_client_id() -> str:
    """A name that nobody had before, in the shape that PyLogStreams gives to clients: a UUID."""
    return new_name("").removeprefix("-")


def new_name(prefix: str) -> str:
    """A name that nobody had before, in the shape that Kafka gives to members of groups."""
    raw = new_id().hex()
    return f"{prefix}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
