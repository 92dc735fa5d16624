"""Requests sent without waiting: all are answered, and the window is kept."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.pipeline import for_seconds, pipelined, up_to

CHUNK = b"request;" * 5
WINDOW = 3


class Server(threading.Thread):
    """Answers every request by one byte, once nobody sends any more without an answer."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self.connection = connection
        self.unanswered: list[int] = []

    def run(self) -> None:
        answered = received = 0
        while data := self.connection.recv(1 << 16):
            received += len(data)
            requests = received // len(b"request;")
            self.unanswered.append(requests - answered)
            self.connection.sendall(b"." * (requests - answered))
            answered = requests
        self.connection.close()


def test_every_request_is_answered_and_no_more_than_a_window_waits() -> None:
    ours, theirs = socket.socketpair()
    server = Server(theirs)
    server.start()
    with ours:
        messages = pipelined(
            ours,
            CHUNK,
            chunk_messages=5,
            window=WINDOW,
            more=up_to(500),
            answered=len,
        )
    server.join()
    assert messages == 500
    assert max(server.unanswered) <= WINDOW * 5


def test_something_is_sent_even_when_the_time_is_up() -> None:
    more = for_seconds(0, at_most=10)
    assert more(0)
    assert not more(1)


def test_server_that_goes_away_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_WR)
    with ours, theirs, pytest.raises(ConnectionResetError):
        pipelined(ours, CHUNK, chunk_messages=5, window=1, more=up_to(1), answered=len)
