"""Ports that no other test takes, in this process or another, until this process ends.

That holds among the tests of one user and one root directory, which share a file of locks. Others
may take a port between its claim and its use.

A broker that is killed can come back to such a port. The system gives none of them to an outgoing
connection: a client that keeps trying to reach a broker that is down could otherwise be given the
broker's port, and reach itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PORTS = range(20_000, 32_000)
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def fixed_port() -> int:
    return next(_own_ports)


def _claim() -> Iterator[int]:
    """Each port at most once. Byte N of a file that all test processes share is the lock of N."""
    first_outgoing = int(_OUTGOING.read_text().split()[0])
    assert _PORTS[-1] < first_outgoing, f"outgoing connections use ports from {first_outgoing}"
    # Opened once: to close any handle of the file would release all its locks.
    with Path(tempfile.gettempdir(), f"millstream-test-ports-{os.getuid()}").open("w") as locks:
        start = os.getpid() * 7
        for step in range(len(_PORTS)):
            port = _PORTS[(start + step) % len(_PORTS)]
            try:
                fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                continue
            if _is_free(port):
                yield port
    raise AssertionError("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_own_ports = _claim()
