"""The client of PyLogStreams, method for method, for the broker's door of that protocol.

    client = Client("localhost", 1234)
    client.register()
    client.subscribe("news")
    client.produce("news", "Breaking: it is live!")
    print(client.consume())

What is produced is sent by a thread, many messages at once; `produce` waits while
`outgoing_buffer_capacity` of them are unsent. `flush` and `close` return when the broker has
answered that everything is on its disk. A program that ends closes its clients first.

Invariant: commands reach the broker in the order in which they were given. Only the answer to `SYN`
proves that messages are stored: an orderly end of the connection does not, because the system sends
it for a broker that was killed, too. If the broker refuses a message it resets the connection.
Whoever produces, flushes or closes after that is told so.
"""

from __future__ import annotations

import atexit
import select
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import ClassVar, Self
from zlib import crc32

from millstream.clock import MonotonicClock
from millstream.errors import ClientClosed, HungUp, InvalidName, Unreachable
from millstream.settings.names import check_topic_name

_RECEIVE_BYTES = 256 * 1024
_CONNECT_S = 10.0
_CLOSE_S = 30.0
_FLUSHED = b"flush-"
"""How the answers to `flush` begin; the other answers are client ids."""
_clock = MonotonicClock()
_UNKNOWN = "surrogateescape"
# Where the system has it, also seen behind what was not yet read. Others tell it as POLLHUP.
_HUNG_UP: int = getattr(select, "POLLRDHUP", 0)


class Client:
    """One connection to the broker. Its methods may be called by any thread; `consume` by one."""

    checksum_enabled: ClassVar[bool] = True
    """Always: the broker takes nothing without one."""
    outgoing_buffer_capacity: ClassVar[int] = 1000
    """Most messages that wait to be sent."""
    ping_interval: ClassVar[float] = 30
    """Seconds between two heartbeats."""

    def __init__(self, host: str = "localhost", port: int = 1234) -> None:
        """Raises Unreachable."""
        self.address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unreachable(address=self.address, reason=reason) from None
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._inbox = _Inbox(self._socket)
        self._outbox = _Outbox(
            self._socket,
            self.address,
            capacity=self.outgoing_buffer_capacity,
            heartbeat=_frame(b"PNG"),
            heartbeat_s=self.ping_interval,
        )
        self._flushes = count(1)
        self._has_produced = False
        self._is_closed = False
        _open_clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Who we are

    def register(self) -> str:
        """Become a new client; returns its id, with which `login` finds its positions again.

        Raises HungUp.
        """
        self._outbox.put(_frame(b"REG"))
        client_id = self._inbox.take_client_id()
        if client_id is None:
            raise self._lost()
        self.login(client_id.decode())
        return client_id.decode()

    def login(self, id: str) -> None:  # noqa: A002 - PyLogStreams calls it so
        """Be a client that was registered before; its earlier connection is ended."""
        if not id:
            raise InvalidName(kind="client", name=id, expected="the id that register gave")
        self._outbox.put(_frame(f"CID {id}".encode()))

    # Messages

    def produce(self, topic: str, message: str | bytes) -> None:
        """Send a message. Raises InvalidName, HungUp."""
        check_topic_name(topic)
        payload = message if isinstance(message, bytes) else message.encode("utf-8", _UNKNOWN)
        head = f"PUB {topic} ".encode()
        size = _pack(len(head) + len(payload))
        self._has_produced = True
        self._outbox.put(b"".join((size, head, payload, _pack(crc32(payload)))))

    def subscribe(self, topic: str) -> None:
        """Receive a topic's messages, from where this client was, or from the oldest."""
        check_topic_name(topic)
        self._outbox.put(_frame(f"SUB {topic}".encode()))

    def consume(self, timeout: float | None = None) -> str | None:
        """The next message, as `topic message`; None when the connection has ended.

        Bytes that are no UTF-8 come as surrogate escapes. Waits for ever, or for `timeout` seconds,
        after which it raises TimeoutError.
        """
        frame = self._inbox.take_delivery(timeout)
        return None if frame is None else frame.decode("utf-8", _UNKNOWN)

    def consume_bytes(self, timeout: float | None = None) -> tuple[str, bytes] | None:
        """The same as topic and payload, as it was sent."""
        frame = self._inbox.take_delivery(timeout)
        if frame is None:
            return None
        topic, _, payload = frame.partition(b" ")
        return topic.decode(), payload

    # Positions

    def reset_offset_oldest(self, topic: str) -> None:
        """Receive a topic again from its oldest message."""
        self._seek(topic, 0)

    def reset_offset_latest(self, topic: str) -> None:
        """Receive only what comes to a topic from now on."""
        self._seek(topic, -1)

    def _seek(self, topic: str, offset: int) -> None:
        check_topic_name(topic)
        self._outbox.put(_frame(f"SET {topic} {offset}".encode()))

    # Ending

    def flush(self, timeout: float | None = None) -> None:
        """Return when the broker has everything that was produced on its disk.

        Raises HungUp if it may not have it, and TimeoutError if it has not answered in time. Until
        then, messages may be lost with the broker's process, the network or this one.
        """
        deadline_s = None if timeout is None else _clock.now_ms() / 1000 + timeout
        if not self._outbox.has_begun:
            self._outbox.flush(timeout)
            return
        token = _FLUSHED + b"%d" % next(self._flushes)
        self._outbox.put(_frame(b"SYN " + token))
        self._outbox.flush(timeout)
        left_s = None if deadline_s is None else max(deadline_s - _clock.now_ms() / 1000, 0)
        if not self._inbox.await_flushed(token, left_s):
            raise self._lost()

    def close(self) -> None:
        """Send everything, wait until the broker has stored it, and hang up. Safe to call twice.

        Raises HungUp when the broker did not store all that was produced, or may not have.
        """
        if self._is_closed:
            return
        self._is_closed = True
        _open_clients.discard(self)
        try:
            if self._has_produced:
                self.flush(_CLOSE_S)
        except TimeoutError:
            reason = f"no answer within {_CLOSE_S:g} s"
            raise HungUp(address=self.address, reason=reason) from None
        finally:
            if self._outbox.close(_CLOSE_S):
                # Closed with something unread, the connection would be reset, and commands lost.
                self._inbox.drain(_CLOSE_S)
            self._socket.close()

    def _lost(self) -> HungUp:
        return HungUp(address=self.address, reason="connection reset")


class _Outbox:
    """What is to be sent, and the thread that sends it."""

    def __init__(
        self,
        connection: socket.socket,
        address: str,
        *,
        capacity: int,
        heartbeat: bytes,
        heartbeat_s: float,
    ) -> None:
        self._socket = connection
        self._address = address
        # Only with `_changed` held: it is for one thread at a time.
        self._poll = select.poll()
        self._poll.register(connection, _HUNG_UP)
        self._capacity = capacity
        self._heartbeat = heartbeat
        self._heartbeat_s = heartbeat_s
        self._unsent: deque[bytes] = deque()
        self._is_sending = False
        self._has_begun = False
        self._is_closing = False
        self._failure: OSError | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pylogstreams-sender", daemon=True)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        """Whether there was any command."""
        return self._has_begun

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) or self._is_sending

    def put(self, frame: bytes) -> None:
        """Send soon. Waits for room. Raises ClientClosed, HungUp."""
        with self._changed:
            while len(self._unsent) >= self._capacity and self._is_working:
                self._changed.wait()
            if self._is_closing:
                raise ClientClosed(what="client")
            self._notice_end()
            self._raise_failure()
            self._unsent.append(frame)
            self._has_begun = True
            if len(self._unsent) == 1:
                self._changed.notify_all()

    def flush(self, timeout: float | None) -> None:
        with self._changed:
            if not self._changed.wait_for(self._is_done, timeout):
                raise TimeoutError(f"{len(self._unsent)} messages are still unsent")
            if not self._is_closing:
                self._notice_end()
            self._raise_failure()

    def close(self, timeout: float) -> bool:
        """Send all that is left, and that it was all; whether that went well."""
        with self._changed:
            if not self._is_closing:
                self._unsent.append(bytes(4))
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return self._failure is None and not self.has_unsent

    @property
    def _is_working(self) -> bool:
        return self._failure is None and not self._is_closing

    def _is_done(self) -> bool:
        return not self.has_unsent or self._failure is not None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            reason = self._failure.strerror or str(self._failure)
            raise HungUp(address=self._address, reason=reason)

    def _notice_end(self) -> None:
        """Fail if the broker has hung up: the system would take what nobody reads any more."""
        if self._failure is None and self._poll.poll(0):
            self._failure = ConnectionResetError("connection ended")
            self._changed.notify_all()

    def _run(self) -> None:
        while frames := self._next():
            try:
                self._socket.sendall(b"".join(frames))
            except OSError as error:
                self._fail(error)
                return

    def _next(self) -> Sequence[bytes]:
        """All that waits, or a heartbeat when nothing does; nothing when there is an end."""
        with self._changed:
            self._is_sending = False
            self._changed.notify_all()
            if not self._unsent and not self._is_closing:
                # Nobody may send a heartbeat before it has said who it is.
                pause_s = self._heartbeat_s if self._has_begun else None
                self._changed.wait_for(lambda: self._unsent or self._is_closing, pause_s)
                if not self._unsent and not self._is_closing:
                    return [self._heartbeat]
            if self._unsent:
                # Not after the last frame: having read that, the broker is to hang up.
                self._notice_end()
            if self._failure is not None:
                return []
            frames = list(self._unsent)
            self._unsent.clear()
            self._is_sending = bool(frames)
            self._changed.notify_all()
            return frames

    def _fail(self, error: OSError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()


class _Inbox:
    """What was received.

    Of the threads that wait for something, one reads, and hands the others what is for them.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()
        self._position = 0
        # Only with `_changed` held.
        self._deliveries: deque[bytes] = deque()
        self._client_ids: deque[bytes] = deque()
        self._flushed: set[bytes] = set()
        self._is_reading = False
        self._has_ended = False
        self._changed = threading.Condition()

    def take_delivery(self, timeout: float | None) -> bytes | None:
        """The next delivery; None when the broker has hung up. Raises TimeoutError."""
        if not self._wait_for(lambda: bool(self._deliveries), timeout):
            return None
        return self._deliveries.popleft()

    def take_client_id(self) -> bytes | None:
        """The answer to REG; None when the broker has hung up."""
        if not self._wait_for(lambda: bool(self._client_ids), None):
            return None
        return self._client_ids.popleft()

    def await_flushed(self, token: bytes, timeout: float | None) -> bool:
        """Whether SYN with a token was answered before the broker hung up. Raises TimeoutError."""
        is_flushed = self._wait_for(lambda: token in self._flushed, timeout)
        self._flushed.discard(token)
        return is_flushed

    def drain(self, timeout: float) -> None:
        """Read all there is, until the broker hangs up."""
        self._socket.settimeout(timeout)
        try:
            while self._socket.recv(_RECEIVE_BYTES):
                pass
        except OSError:
            return

    def _wait_for(self, is_there: Callable[[], bool], timeout: float | None) -> bool:
        """Read until something is there; False when the broker hangs up first."""
        deadline_s = None if timeout is None else _clock.now_ms() / 1000 + timeout
        with self._changed:
            while not is_there():
                if self._has_ended:
                    return False
                left_s = None if deadline_s is None else max(deadline_s - _clock.now_ms() / 1000, 0)
                if not self._is_reading:
                    self._read_frame(left_s)
                elif not self._changed.wait(left_s):
                    raise TimeoutError(f"nothing came within {timeout:g} s")
            return True

    def _read_frame(self, timeout: float | None) -> None:
        """Read a frame while others may look for what there is already."""
        self._is_reading = True
        self._changed.release()
        frame: bytes | None = None
        has_ended = False
        try:
            frame = self._frame(timeout)
            has_ended = frame is None
        finally:
            self._changed.acquire()
            self._is_reading = False
            self._has_ended = self._has_ended or has_ended
            if frame is not None:
                self._sort_in(frame)
            self._changed.notify_all()

    def _sort_in(self, frame: bytes) -> None:
        # Of all frames only deliveries have a space.
        if b" " in frame:
            self._deliveries.append(frame)
        elif frame.startswith(_FLUSHED):
            self._flushed.add(frame)
        else:
            self._client_ids.append(frame)

    def _frame(self, timeout: float | None) -> bytes | None:
        head = self._exactly(4, timeout)
        if head is None:
            return None
        size = int.from_bytes(head, "big")
        try:
            return self._exactly(size, timeout)
        except TimeoutError:
            # The frame goes on later; its length must be found again then.
            self._position -= 4
            raise

    def _exactly(self, size: int, timeout: float | None) -> bytes | None:
        received = self._received
        while len(received) - self._position < size:
            if self._position:
                del received[: self._position]
                self._position = 0
            # Only here: the sender's writes are not to time out.
            chunk = self._receive(max(size - len(received), _RECEIVE_BYTES), timeout)
            if not chunk:
                return None
            received += chunk
        self._position += size
        return bytes(received[self._position - size : self._position])

    def _receive(self, size: int, timeout: float | None) -> bytes:
        """Some bytes; none when the broker has hung up, or we have. Raises TimeoutError."""
        try:
            if timeout is not None:
                _wait_readable(self._socket, timeout)
            return self._socket.recv(size)
        except TimeoutError:
            raise
        except OSError:
            return b""


def _wait_readable(connection: socket.socket, timeout: float) -> None:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if not poll.poll(timeout * 1000):
        raise TimeoutError(f"no message within {timeout:g} s")


def _frame(content: bytes) -> bytes:
    return _pack(len(content)) + content


_pack = struct.Struct(">I").pack

# Also those that nobody refers to any more: they may have something left to send.
_open_clients: set[Client] = set()


@atexit.register
def _close_all() -> None:
    """A program that ends loses nothing that it produced, or it is told."""
    for client in list(_open_clients):
        try:
            client.close()
        except (OSError, Unreachable) as error:
            sys.stderr.write(
                f"millstream: messages that were produced were not stored, or not all: {error}\n"
            )
