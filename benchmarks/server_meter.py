"""What a server in another process spends while we use it.

CPU time is that of every thread of the process and of the processes it started, to the nanosecond,
as the scheduler counts it; of children that have ended, in ticks of 10 ms. A thread that ends
takes its figures along, so the meter is for servers that keep their threads.
"""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from typing import NamedTuple, Self


class Usage(NamedTuple):
    """Of one stretch of work: how long it took, and the CPU time on both sides of the socket."""

    wall_s: float
    server_cpu_s: float
    client_cpu_s: float

    def best(self, other: Usage) -> Usage:
        return Usage(*map(min, self, other))


class ServerMeter:
    """Runs inside a `with` block, beside the process of a server."""

    __slots__ = ("_client_cpu_s", "_pid", "_server_cpu_s", "_wall_s")

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> Self:
        gc.collect()
        self._server_cpu_s = -cpu_s(self._pid)
        self._client_cpu_s = -time.process_time()
        self._wall_s = -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall_s += time.perf_counter()
        self._client_cpu_s += time.process_time()
        self._server_cpu_s += cpu_s(self._pid)

    @property
    def usage(self) -> Usage:
        return Usage(self._wall_s, self._server_cpu_s, self._client_cpu_s)


def cpu_s(pid: int) -> float:
    """The CPU time of a process and of all that descend from it."""
    total_ns = 0
    for thread in _threads(pid):
        # A thread may end while we look.
        with suppress(FileNotFoundError, ProcessLookupError):
            total_ns += int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[0])
    return total_ns / 1e9 + _ended_children_s(pid) + sum(map(cpu_s, _children(pid)))


def _ended_children_s(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        # The name of the program may hold anything, but the last bracket closes it.
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in _threads(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _threads(pid: int) -> list[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        return os.listdir(f"/proc/{pid}/task")
    return []


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
