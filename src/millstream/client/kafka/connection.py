"""One connection to one broker: requests go out, answers come back in their order.

Several requests may be under way. Whatever goes wrong with the socket closes the connection, for
nobody can know where the next answer begins; who used it gets an error that is Unavailable.

Invariant: the answers that are due are those of the requests that were begun, in that order.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from typing import Any, TypeVar

from millstream.client.kafka.address import Address
from millstream.client.kafka.versions import VERSIONS
from millstream.errors import (
    AnswerLost,
    InvalidRequest,
    MalformedMessage,
    TimedOut,
    Unreachable,
    UnsupportedBroker,
)
from millstream.protocol.apis import API_VERSIONS, APIS, is_flexible
from millstream.protocol.codec import decode, encode_parts
from millstream.protocol.notation import Struct
from millstream.protocol.primitives import UNREADABLE, skip_tags

Answer = TypeVar("Answer", bound=Struct)

# What is larger is no answer of a broker, but of something else that listens there.
_LARGEST_ANSWER_BYTES = 1 << 30
# More are small ones; and no system takes more than some hundred of them at once.
_MOST_PARTS = 64
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">ihhih")
_NO_TAGS = b"\0"


class Connection:
    """An open connection. Not for several threads at once."""

    def __init__(self, sock: socket.socket, address: Address, client_id: str) -> None:
        self._socket = sock
        self._client_id = client_id.encode()
        self._due: deque[tuple[int, type[Struct], int]] = deque()
        self._last_id = 0
        self._timeout_s = 0.0
        self.address = address
        self.is_open = True
        self.versions: dict[int, tuple[int, int]] = {}
        """What the broker speaks, by API, once it has told."""

    @property
    def due(self) -> int:
        """How many answers are to come."""
        return len(self._due)

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and nothing is under way."""
        return self.is_open and not self._due

    def limit(self, timeout_s: float) -> None:
        """Let the broker take this long, each time that we wait for it."""
        self._timeout_s = timeout_s
        if self.is_open:
            self._socket.settimeout(timeout_s)

    def ask(self, request: Struct, answer: type[Answer]) -> Answer:
        """One request, and its answer. Nothing else may be under way."""
        assert not self._due
        self.begin(request, answer)
        return self.receive(answer)

    def fileno(self) -> int:
        """For who waits for several connections at once."""
        return self._socket.fileno()

    def begin(self, request: Struct, answer: type[Struct]) -> None:
        """Send a request; its answer is to be received later. Raises Unavailable."""
        self._transmit(request, answer)

    def tell(self, request: Struct) -> None:
        """Send a request that nobody answers. Raises Unavailable."""
        self._transmit(request, None)

    def _transmit(self, request: Struct, answer: type[Struct] | None) -> None:
        assert request.API_KEY is not None
        api_key, version = request.API_KEY, self.version_of(request.API_KEY)
        body = _body(request, version)
        tags = _NO_TAGS if is_flexible(api_key, version) else b""
        size = sum(map(len, body)) + _HEAD.size - _SIZE.size + len(self._client_id) + len(tags)
        self._last_id += 1
        head = _HEAD.pack(size, api_key, version, self._last_id, len(self._client_id))
        if answer is not None:
            # First, so that whoever is interrupted leaves a connection that is not idle.
            self._due.append((self._last_id, answer, version))
        try:
            self._send([head + self._client_id + tags, *body])
        except OSError as error:
            raise self._broken(error) from error

    def receive(self, answer: type[Answer]) -> Answer:
        """The answer that is due next, of the class that was asked for. Raises Unavailable."""
        correlation_id, expected, version = self._due.popleft()
        assert expected is answer
        assert answer.API_KEY is not None
        api_key = answer.API_KEY
        try:
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            if not 4 <= size <= _LARGEST_ANSWER_BYTES:
                raise self._strange(f"it answers with {size} bytes")
            content = memoryview(self._exactly(size))
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            # Whoever was interrupted has read a part of it.
            self.close()
            raise
        if _SIZE.unpack_from(content)[0] != correlation_id:
            raise self._strange("it answers in another order")
        try:
            position = 4
            if api_key != API_VERSIONS and is_flexible(api_key, version):
                position = skip_tags(content, position, len(content))
            return decode(answer, version, content, position)
        except (MalformedMessage, *UNREADABLE) as error:
            raise self._strange(str(error)) from error

    def version_of(self, api_key: int) -> int:
        """The newest version that both speak. Raises UnsupportedBroker."""
        ours = VERSIONS[api_key]
        if not self.versions:
            return ours[0]
        theirs = self.versions.get(api_key)
        if theirs is None or theirs[0] > ours[1] or theirs[1] < ours[0]:
            name = APIS[api_key].name if api_key in APIS else f"API {api_key}"
            raise UnsupportedBroker(address=str(self.address), api=name, ours=ours, theirs=theirs)
        return min(ours[1], theirs[1])

    def close(self) -> None:
        self.is_open = False
        self._due.clear()
        self._socket.close()

    def _send(self, parts: list[Any]) -> None:
        if isinstance(self._socket, ssl.SSLSocket) or len(parts) > _MOST_PARTS:
            self._socket.sendall(b"".join(parts))
            return
        left = [memoryview(part) for part in parts if len(part)]
        while left:
            sent = self._socket.sendmsg(left)
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def _exactly(self, size: int) -> bytearray:
        content = bytearray(size)
        with memoryview(content) as view:
            received = 0
            while received < size:
                more = self._socket.recv_into(view[received:])
                if not more:
                    raise ConnectionResetError("it hung up")
                received += more
        return content

    def _broken(self, error: OSError) -> AnswerLost | TimedOut:
        self.close()
        if isinstance(error, TimeoutError):
            operation = f"the answer of the broker at {self.address}"
            return TimedOut(operation=operation, timeout_ms=round(self._timeout_s * 1000))
        return AnswerLost(operation=f"a request to the broker at {self.address}")

    def _strange(self, reason: str) -> Unreachable:
        self.close()
        return Unreachable(address=str(self.address), reason=reason)


def _body(request: Struct, version: int) -> list[bytes | memoryview]:
    """Raises InvalidRequest for what the protocol has no room for, as a number of 30 digits."""
    try:
        return encode_parts(request, version)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{error.object[:100]!r} is no name that there can be: give text"
        ) from None
    except (struct.error, OverflowError) as error:
        raise InvalidRequest(
            f"a number is too large for a {type(request).__name__}: {error}"
        ) from None
