"""Sends requests on one connection without waiting for answers, up to a window.

The requests are bytes made beforehand, the same again and again, and answers are only counted: a
client that costs next to nothing, so that what is measured is the server.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

_RECEIVE_BYTES = 1 << 20

More = Callable[[int], bool]
"""Whether to send more after so many messages."""


def pipelined(
    connection: socket.socket,
    chunk: bytes,
    *,
    chunk_messages: int,
    window: int,
    more: More,
    answered: Callable[[bytes], int],
) -> int:
    """Send the chunk again and again, at most a window of them unanswered; how many messages.

    `answered` says how many messages the bytes just received answer. The answers to a window must
    fit into the buffers of the connection, since nobody reads while a chunk is being sent.
    """
    sent = unanswered = 0
    sending = True
    while sending or unanswered:
        while sending and unanswered <= (window - 1) * chunk_messages:
            sending = more(sent)
            if sending:
                connection.sendall(chunk)
                sent += chunk_messages
                unanswered += chunk_messages
        if unanswered:
            unanswered -= answered(receive(connection))
    assert unanswered == 0, unanswered
    return sent


def receive(connection: socket.socket) -> bytes:
    """What has arrived, and something has."""
    received = connection.recv(_RECEIVE_BYTES)
    if not received:
        raise ConnectionResetError("the server closed the connection")
    return received


def up_to(messages: int) -> More:
    return lambda sent: sent < messages


def for_seconds(seconds: float, *, at_most: int) -> More:
    """Until the time is up or so many messages are sent, but once however little time there is."""
    deadline_s = time.perf_counter() + seconds
    return lambda sent: not sent or (sent < at_most and time.perf_counter() < deadline_s)
