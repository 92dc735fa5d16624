"""Many connections, each of which sends a request as soon as the one before is answered."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple


class LoopOutcome(NamedTuple):
    """What came of it, over all connections."""

    requests_per_s: float
    latencies_s: list[float]
    answers: bytes


def closed_loop(
    connections: Sequence[socket.socket], request: bytes, *, answer_bytes: int, seconds: float
) -> LoopOutcome:
    """Keep one request of each connection under way, until the time is up and all are answered."""
    poll = select.epoll()
    of_fd = {connection.fileno(): connection for connection in connections}
    left = dict.fromkeys(of_fd, answer_bytes)
    begin_s = time.perf_counter()
    deadline_s = begin_s + seconds
    sent_s: dict[int, float] = {}
    for fd, connection in of_fd.items():
        poll.register(fd, select.EPOLLIN)
        sent_s[fd] = time.perf_counter()
        connection.sendall(request)
    latencies_s: list[float] = []
    answers = {fd: bytearray() for fd in of_fd}
    while sent_s:
        for fd, _ in poll.poll():
            received = of_fd[fd].recv(left[fd])
            assert received, "the server closed the connection"
            left[fd] -= len(received)
            answers[fd] += received
            if left[fd]:
                continue
            now_s = time.perf_counter()
            latencies_s.append(now_s - sent_s.pop(fd))
            left[fd] = answer_bytes
            if now_s < deadline_s:
                sent_s[fd] = now_s
                of_fd[fd].sendall(request)
    wall_s = time.perf_counter() - begin_s
    poll.close()
    return LoopOutcome(len(latencies_s) / wall_s, latencies_s, b"".join(answers.values()))
