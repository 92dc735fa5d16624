"""Many HTTP connections, each of which sends a request as soon as the one before is answered."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence

_LENGTH = b"content-length: "


def http_request(path: str, body: bytes, content_type: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def http_loop(connections: Sequence[socket.socket], request: bytes, *, seconds: float) -> float:
    """Answers a second, over all connections; every one of them is 200."""
    poll = select.epoll()
    of_fd = {each.fileno(): each for each in connections}
    received = dict.fromkeys(of_fd, b"")
    begin_s = time.perf_counter()
    deadline_s = begin_s + seconds
    for fd, connection in of_fd.items():
        poll.register(fd, select.EPOLLIN)
        connection.sendall(request)
    waiting = set(of_fd)
    count = 0
    while waiting:
        for fd, _ in poll.poll():
            chunk = of_fd[fd].recv(1 << 20)
            assert chunk, "the server closed the connection"
            received[fd] += chunk
            if not _is_whole(received[fd]):
                continue
            assert received[fd].startswith(b"HTTP/1.1 200 "), received[fd]
            received[fd] = b""
            count += 1
            if time.perf_counter() < deadline_s:
                of_fd[fd].sendall(request)
            else:
                waiting.discard(fd)
    wall_s = time.perf_counter() - begin_s
    poll.close()
    return count / wall_s


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    at = head.find(_LENGTH) + len(_LENGTH)
    return len(body) >= int(head[at:].partition(b"\r\n")[0])
