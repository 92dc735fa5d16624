"""RabbitMQ streams, which leave syncing to the kernel: no mode syncs before it answers.

The server's name service runs as a process of ours beside it, since the one that the server would
start by itself stays behind when the server ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.peers.session import Contender, Session
from benchmarks.pipeline import More, pipelined, receive, up_to
from benchmarks.server_process import ServerProcess, connect, free_port

# Debian's program of that name changes to another user, who cannot write to our directory.
_SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_START_S = 90
_CHUNK_MESSAGES = 1_000
_WINDOW = 16
_CREDIT = 10
_DECLARE, _PUBLISH, _CONFIRM, _SUBSCRIBE, _DELIVER, _CREDITS = 1, 2, 3, 7, 8, 9
_CREATE, _PROPERTIES, _HANDSHAKE, _AUTHENTICATE, _TUNE, _OPEN = 13, 17, 18, 19, 20, 21
_UNSUBSCRIBE = 12
_ANSWER = 0x8000
_OK = 1


def rabbitmq_streams(*, synced: bool) -> Contender:
    @contextmanager
    def run(directory: str, value: bytes) -> Iterator[Session]:
        port = free_port()
        environment = _environment(os.path.abspath(directory), port)
        names_log = os.path.join(directory, "epmd.log")
        log_path = os.path.join(directory, "rabbitmq.log")
        with (
            ServerProcess(
                ["epmd", "-address", "127.0.0.1"], log_path=names_log, environment=environment
            ),
            ServerProcess([_SERVER], log_path=log_path, environment=environment) as server,
        ):
            address = ("127.0.0.1", port)
            connection = server.until(lambda: connect(address), within_s=_START_S)
            with connection:
                yield _RabbitSession(server.pid, connection, value)

    return Contender(name="RabbitMQ streams", absent=_absent(synced=synced), run=run)


def _absent(*, synced: bool) -> str:
    if synced:
        return "no mode syncs before it answers"
    if not all(map(shutil.which, ("rabbitmq-server", "epmd"))):
        return "rabbitmq-server is not installed: make peers"
    return "" if os.path.exists(_SERVER) else f"there is no {_SERVER}"


def _environment(directory: str, port: int) -> dict[str, str]:
    settings_path = os.path.join(directory, "rabbitmq.conf")
    with open(settings_path, "w", encoding="ascii") as settings:
        settings.write(f"listeners.tcp.1 = 127.0.0.1:{free_port()}\n")
        settings.write(f"stream.listeners.tcp.1 = 127.0.0.1:{port}\n")
    plugins_path = os.path.join(directory, "enabled_plugins")
    with open(plugins_path, "w", encoding="ascii") as plugins:
        plugins.write("[rabbitmq_stream].\n")
    return {
        "ERL_EPMD_PORT": str(free_port()),
        "HOME": directory,
        "RABBITMQ_CONFIG_FILE": settings_path,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": plugins_path,
        "RABBITMQ_LOG_BASE": directory,
        "RABBITMQ_MNESIA_BASE": directory,
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


class _RabbitSession:
    def __init__(self, pid: int, connection: socket.socket, value: bytes) -> None:
        self.pid = pid
        self._connection = connection
        self._frames = _Frames()
        self._subscriptions = 0
        # A message is an AMQP section of data.
        section = b"\x00\x53\x75\xb0" + struct.pack(">I", len(value)) + value
        self._message = struct.pack(">QI", 0, len(section)) + section
        self._ask(_PROPERTIES, struct.pack(">I", 0))
        self._ask(_HANDSHAKE, b"")
        self._ask(_AUTHENTICATE, _string("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest")
        tune = self._expect(_TUNE)
        (frame_bytes,) = struct.unpack_from(">I", tune, 4)
        connection.sendall(_frame(_TUNE, struct.pack(">II", frame_bytes, 0)))
        self._ask(_OPEN, _string("/"))
        self._ask(_CREATE, _string("s") + struct.pack(">I", 0))
        self._ask(_DECLARE, b"\x00" + _string("") + _string("s"))

    def produce(self, more: More) -> int:
        return self._send(_CHUNK_MESSAGES, more)

    def produce_one(self) -> None:
        self._send(1, up_to(1))

    def consume(self, messages: int) -> int:
        self._subscriptions += 1
        subscription = struct.pack(">B", self._subscriptions)
        # From the first message on.
        start = struct.pack(">HHI", 1, _CREDIT, 0)
        self._ask(_SUBSCRIBE, subscription + _string("s") + start)
        done = 0
        while done < messages:
            frame = self._expect(_DELIVER)
            # Behind version, subscription, magic, kind and entries.
            (records,) = struct.unpack_from(">I", frame, 4 + 1 + 4)
            done += records
            self._connection.sendall(_frame(_CREDITS, subscription + struct.pack(">H", 1)))
        self._ask(_UNSUBSCRIBE, subscription)
        return done

    def _send(self, messages: int, more: More) -> int:
        body = struct.pack(">BI", 0, messages) + self._message * messages
        return pipelined(
            self._connection,
            _frame(_PUBLISH, body),
            chunk_messages=messages,
            window=_WINDOW,
            more=more,
            answered=self._confirmed,
        )

    def _confirmed(self, received: bytes) -> int:
        confirmed = 0
        self._frames.feed(received)
        while (frame := self._frames.next()) is not None:
            if frame[:2] == struct.pack(">H", _CONFIRM):
                confirmed += int(struct.unpack_from(">I", frame, 5)[0])
        return confirmed

    def _ask(self, key: int, body: bytes) -> None:
        self._connection.sendall(_frame(key, struct.pack(">I", 1) + body))
        answer = self._expect(_ANSWER | key)
        (code,) = struct.unpack_from(">H", answer, 8)
        assert code == _OK, (key, code)

    def _expect(self, key: int) -> bytes:
        """The next frame of this kind; others are passed over."""
        while True:
            while (frame := self._frames.next()) is None:
                self._frames.feed(receive(self._connection))
            if frame[:2] == struct.pack(">H", key):
                return frame


class _Frames:
    """Cuts what arrives into frames, from their key on."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._position = 0

    def feed(self, received: bytes) -> None:
        del self._buffer[: self._position]
        self._position = 0
        self._buffer += received

    def next(self) -> bytes | None:
        begin = self._position + 4
        if begin > len(self._buffer):
            return None
        end = begin + int.from_bytes(self._buffer[self._position : begin], "big")
        if end > len(self._buffer):
            return None
        self._position = end
        return bytes(self._buffer[begin:end])


def _frame(key: int, body: bytes) -> bytes:
    return struct.pack(">IHH", 4 + len(body), key, 1) + body


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode("ascii")
