"""Redis Streams with the append-only file: synced every second, or before every answer."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.peers.line_answers import LineAnswers
from benchmarks.peers.session import Contender, Session
from benchmarks.pipeline import More, pipelined, receive, up_to
from benchmarks.server_process import ServerProcess, connect, free_port

_START_S = 30
_CHUNK_MESSAGES = 1_000
_WINDOW = 8
_READ_MESSAGES = _CHUNK_MESSAGES
_STREAM = b"s"
_FIELD = b"v"


def redis_streams(*, synced: bool) -> Contender:
    @contextmanager
    def run(directory: str, value: bytes) -> Iterator[Session]:
        port = free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "always" if synced else "everysec"]
        # Rewriting the file in the background would fall into the turns of others.
        command += ["--auto-aof-rewrite-percentage", "0", "--dir", directory]
        log_path = os.path.join(directory, "redis.log")
        with ServerProcess(command, log_path=log_path) as server:
            address = ("127.0.0.1", port)
            connection = server.until(lambda: connect(address), within_s=_START_S)
            with connection:
                yield _RedisSession(server.pid, connection, value)

    absent = "" if shutil.which("redis-server") else "redis-server is not installed: make peers"
    return Contender(name="Redis Streams", absent=absent, run=run)


class _RedisSession:
    def __init__(self, pid: int, connection: socket.socket, value: bytes) -> None:
        self.pid = pid
        self._connection = connection
        self._value = value
        self._add = _command(b"XADD", _STREAM, b"*", _FIELD, value)

    def produce(self, more: More) -> int:
        return self._send(self._add * _CHUNK_MESSAGES, _CHUNK_MESSAGES, more)

    def produce_one(self) -> None:
        self._send(self._add, 1, up_to(1))

    def consume(self, messages: int) -> int:
        # Between the id of an entry and the next entry: a field and the value that we gave it.
        after_id = len(_command(_FIELD, self._value)) + 2
        last_id = b"0"
        done = 0
        while done < messages:
            count = b"%d" % _READ_MESSAGES
            self._connection.sendall(
                _command(b"XREAD", b"COUNT", count, b"STREAMS", _STREAM, last_id)
            )
            # Five lines before the entries, eight for each.
            lines = 5 + 8 * _READ_MESSAGES
            tail = b""
            while lines:
                received = receive(self._connection)
                lines -= received.count(b"\n")
                tail = (tail + received)[-(after_id + 64) :]
            last_id = tail[:-after_id].rsplit(b"\n", 1)[1]
            done += _READ_MESSAGES
        return done

    def _send(self, chunk: bytes, messages: int, more: More) -> int:
        answers = LineAnswers(lines=2, error=b"-ERR")
        return pipelined(
            self._connection,
            chunk,
            chunk_messages=messages,
            window=_WINDOW,
            more=more,
            answered=answers.count,
        )


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
