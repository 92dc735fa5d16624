"""The other end of a connection, without a socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from millstream.gateways.kafka.connection import Connection
from millstream.gateways.kafka.listener import Door


class DirectTransport(asyncio.Transport):
    """A client that takes all that is sent to it, and sees that it is sent in whole answers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._protocol: Connection | None = None
        self._unchecked = bytearray()
        self.answers: list[bytes] = []
        self.is_closed = False
        self.takes_input = True

    @classmethod
    def connect(cls, door: Door, name: str) -> tuple[DirectTransport, Connection]:
        transport = cls(name)
        transport._protocol = connection = Connection(door)
        connection.connection_made(transport)
        return transport, connection

    def feed(self, data: bytes) -> None:
        """Receive, in as many reads as the connection has room for."""
        assert self._protocol is not None
        position = 0
        while position < len(data) and self.takes_input and not self.is_closed:
            space = self._protocol.get_buffer(-1)
            assert len(space) > 0, "there is no room to receive into"
            count = min(len(space), len(data) - position)
            space[:count] = data[position : position + count]
            position += count
            self._protocol.buffer_updated(count)
            assert not self._unchecked, "an answer is not whole"

    def hang_up(self) -> None:
        """As the event loop does when the client has gone."""
        if not self.is_closed:
            self.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self._name, 1), "sockname": ("127.0.0.1", 9092)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.is_closed
        self._unchecked += data
        self._take_answers()

    def pause_reading(self) -> None:
        assert self.takes_input
        self.takes_input = False

    def resume_reading(self) -> None:
        assert not self.takes_input
        self.takes_input = True

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self._protocol is not None
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def _take_answers(self) -> None:
        position = 0
        while len(self._unchecked) - position >= 4:
            (size,) = struct.unpack_from(">i", self._unchecked, position)
            assert size >= 4, "an answer has no header"
            if size > len(self._unchecked) - position - 4:
                break
            self.answers.append(bytes(self._unchecked[position : position + 4 + size]))
            position += 4 + size
        del self._unchecked[:position]
