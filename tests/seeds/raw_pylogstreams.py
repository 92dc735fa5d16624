"""A PyLogStreams client of nothing but a socket, written from the description of the protocol."""

from __future__ import annotations

import select
import socket
import struct
import zlib
from itertools import count
from typing import Self

from tests.fakes.patience import HANG_S

# From 127.1.0.1 on.
_HOSTS = count(0x7F010001)


class RawClient:
    """Sends frames and receives them.

    Each client has an address of its own: a broker limits how much one address adds to its log.
    """

    def __init__(self, port: int) -> None:
        host = socket.inet_ntoa(struct.pack(">I", next(_HOSTS)))
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=HANG_S, source_address=(host, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # Commands

    def register(self) -> str:
        self.send_frame(b"REG")
        client_id = self.receive()
        assert client_id is not None
        return client_id.decode()

    def login(self, client_id: str) -> None:
        self.send_frame(b"CID " + client_id.encode())

    def subscribe(self, topic: str) -> None:
        self.send_frame(b"SUB " + topic.encode())

    def seek(self, topic: str, offset: int) -> None:
        self.send_frame(f"SET {topic} {offset}".encode())

    def publish(self, topic: str, *payloads: bytes) -> None:
        self.socket.sendall(b"".join(publish_frame(topic, payload) for payload in payloads))

    def ping(self) -> None:
        self.send_frame(b"PNG")

    def finish(self) -> None:
        """Say that this was all, and wait until the broker has hung up, so has read it."""
        self.socket.sendall(bytes(4))
        while self.receive() is not None:
            pass

    # Frames

    def send_frame(self, content: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(content)) + content)

    def receive(self) -> bytes | None:
        """The content of the next frame; None when the broker has hung up."""
        head = self._exactly(4)
        if head is None:
            return None
        return self._exactly(struct.unpack(">I", head)[0])

    def payloads(self, topic: str, count: int) -> list[bytes]:
        """The payloads of the next deliveries, which are all of one topic."""
        found: list[bytes] = []
        for _ in range(count):
            frame = self.receive()
            assert frame is not None, f"hung up after {len(found)} of {count}"
            name, _, payload = frame.partition(b" ")
            assert name.decode() == topic
            found.append(payload)
        return found

    def is_quiet(self, seconds: float = 0.2) -> bool:
        """Whether nothing arrives for a while."""
        return not self._received and not select.select([self.socket], [], [], seconds)[0]

    def is_closed(self) -> bool:
        """Wait for the broker to hang up; anything else it sends is not expected."""
        try:
            return self.receive() is None
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes | None:
        while len(self._received) < size:
            chunk = self.socket.recv(max(65536, size - len(self._received)))
            if not chunk:
                return None
            self._received += chunk
        taken, self._received = self._received[:size], self._received[size:]
        return taken


def publish_frame(topic: str, payload: bytes, *, checksum: int | None = None) -> bytes:
    content = b"PUB " + topic.encode() + b" " + payload
    checksum = zlib.crc32(payload) if checksum is None else checksum
    return struct.pack(">I", len(content)) + content + struct.pack(">I", checksum)
