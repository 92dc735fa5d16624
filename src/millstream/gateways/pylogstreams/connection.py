"""One client's connection: cuts what it receives into frames, and does what they say.

Frames are worked off in the order in which they came. One that has to wait, for a topic to be
created or for room on the disk, keeps those behind it waiting, and the connection is not read
meanwhile: that is how a producer is slowed. What cannot be understood, or cannot be stored, ends
the connection, with a line in the log: only `REG` and `SYN` have an answer.

Invariant: the connection of a client that has published ends in good order, with a FIN, only if the
client has asked for that and all that it had sent before is stored. Otherwise it is reset, so the
client can tell. So is every connection over which something came that was refused.

What the client leaves unread holds back its own deliveries (see `delivery`), never its commands.
Cost: benchmarks/pylogstreams.py.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from millstream.broker.connections import ConnectionDescription
from millstream.errors import InvalidRequest, MalformedMessage, MillstreamError
from millstream.gateways.connection_log import ConnectionLog
from millstream.gateways.pylogstreams.delivery import LATEST, Delivery
from millstream.gateways.pylogstreams.frames import (
    LENGTH_BYTES,
    PUBLISH,
    frame_bytes,
    framed,
    split_command,
    take_published,
)
from millstream.gateways.pylogstreams.publishing import Publishing, check_client_topic
from millstream.gateways.pylogstreams.sessions import Session
from millstream.gateways.receive_buffer import ReceiveBuffer

if TYPE_CHECKING:
    from millstream.gateways.pylogstreams.door import Door

_log = logging.getLogger(__name__)

_TURN_STEPS = 1000

_LONGEST_ID = 255
_MOST_UNREAD = 1000
"""Most answers to SYN that a client may leave unread."""
_DRAIN_S = 5.0
_DRAIN_STEP_S = 0.01
_LINGER_NOT = struct.pack("ii", 1, 0)


class Connection(asyncio.BufferedProtocol):
    """The broker's end of one connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._frame_max_bytes = door.settings.frame_max_bytes
        self._buffer = ReceiveBuffer(door.pool)
        self._publishing = Publishing(
            door.broker.topics, clock=door.broker.clock, message_max_bytes=self._frame_max_bytes
        )
        self.delivery = Delivery(
            topics=door.broker.topics,
            sessions=door.sessions,
            pages=door.pages,
            subscribers=door.subscribers,
            max_messages=door.settings.outgoing_max_messages,
            max_topics=door.settings.max_subscriptions,
            fail=self._end,
            client_log=door.broker.client_log,
        )
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._peer = "?"
        self._log = ConnectionLog(door.broker.client_log, _log)
        self._session: Session | None = None
        self._logins = 0
        self._steps = 0
        self._unread_answers = 0
        self._has_published = False
        self._is_to_be_reset = False
        # What the next frame has to wait for.
        self._pending: asyncio.Task[None] | None = None
        # Why the connection is to end once what came before is stored.
        self._refusal: MillstreamError | None = None
        self._lacks_memory = False
        self._is_reading = True
        self._is_finishing = False
        self._is_ending = False
        self._is_lost = False
        self._since_ms = door.broker.clock.now_ms()
        self.heard_s = self._since_s = self._loop.time()
        """When the client last showed that it is alive."""

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        # So we are told whether the socket has taken all of a write, and when it has.
        transport.set_write_buffer_limits(high=0)
        host, port = (*(transport.get_extra_info("peername") or ("?", 0)),)[:2]
        self._peer = self._log.peer = f"{host}:{port}"
        self.delivery.start(self._write)
        if not self._door.admit(self):
            self._end(InvalidRequest("there are as many connections as max.connections allows"))
        _log.debug("pylogstreams: %(peer)s: connected", {"peer": self._peer})

    def connection_lost(self, exc: Exception | None) -> None:
        _log.debug("pylogstreams: %(peer)s: gone: %(error)s", {"peer": self._peer, "error": exc})
        self._is_lost = True
        self._door.broker.memory.resume(self)
        self.delivery.close()
        self._door.connections.discard(self)
        self._door.pool.leave(self._go_on)
        if self._pending is None:
            self._leave()

    def eof_received(self) -> None:
        """All that the client sent was worked off: nothing is read while anything waits."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio says so
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer.end += nbytes
        self.heard_s = self._loop.time()
        self._work()

    def pause_writing(self) -> None:
        self.delivery.hold()
        self._door.broker.memory.stall(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._door.broker.memory.resume(self)
        self._unread_answers = 0
        self.delivery.go_on()

    # Frames

    def _work(self) -> None:
        """Work off all frames that are there in full, until one has to wait."""
        buffer = self._buffer
        data, base, needed = b"", 0, LENGTH_BYTES
        try:
            while self._pending is None and not self._is_ending:
                start, end = buffer.start, buffer.end
                needed = frame_bytes(buffer.view, start, end, max_bytes=self._frame_max_bytes)
                if end - start < needed:
                    break
                if not data:
                    # Once for all frames; the pieces of a frame are not copied again and again.
                    data, base = bytes(buffer.view[start:end]), start
                buffer.start = base + self._take(data, start - base)
        except MillstreamError as error:
            self._refuse(error)
        except Exception as error:  # Outer edge: other connections go on after a bug in a frame.
            self._log.write(
                logging.ERROR,
                "pylogstreams: %(peer)s: a frame failed; the connection is closed",
                {},
                kind=type(error).__name__,
                exc_info=error,
            )
            self._publishing.published.clear()
            self.hang_up(is_refusal=True)
        if self._is_ending and self._pending is None:
            buffer.close()
            return
        self._lacks_memory = not buffer.settle(max(needed, buffer.end - buffer.start))
        if self._lacks_memory:
            self._door.pool.wait(self._go_on)
        self._read_or_not()

    def _take(self, data: bytes, position: int) -> int:
        """Take the whole frame at a position, or several; returns where the next one begins."""
        start = position + LENGTH_BYTES
        following = start + int.from_bytes(data[position:start], "big")
        if data.startswith(PUBLISH, start, following):
            self._logged_in("PUB")
            self._has_published = True
            limit = self._frame_max_bytes
            following = take_published(data, position, self._publishing.published, max_bytes=limit)
            assert following > position, "it is there in full"
            self._store()
            return following
        frame = data[start:following]
        if frame:
            self._obey(*split_command(frame))
        else:
            self.close()
        return following

    def _obey(self, command: str, words: list[str]) -> None:
        if command == "REG":
            self._count_login()
            client_id = self._door.new_client_id()
            self._write(framed(client_id.encode()))
            self._log_in(self._door.sessions.open_new(client_id, self))
            self._door.commands[command] += 1
            return
        if command == "CID":
            self._begin_log_in(" ".join(words))
            self._door.commands[command] += 1
            return
        self._logged_in(command)
        if command == "SUB" and len(words) == 1:
            check_client_topic(words[0])
            if not (self._is_lost or self._is_finishing):
                self._note_steps(self.delivery.subscribe(words[0]))
        elif command == "SET" and len(words) == 2:
            check_client_topic(words[0])
            self._note_steps(self.delivery.move(words[0], _offset(words[1])))
        elif command == "SYN" and len(words) == 1:
            self._begin_sync(words[0])
        elif command != "PNG":
            raise MalformedMessage(f"{' '.join([command, *words])[:80]!r} is no command")
        self._door.commands[command] += 1

    def _note_steps(self, count: int) -> None:
        """Let others have their turn after so many partitions."""
        self._steps += count
        if self._steps >= _TURN_STEPS:
            self._steps = 0
            self._wait(asyncio.sleep(0))

    def _logged_in(self, command: str) -> None:
        if self._session is None:
            raise MalformedMessage(f"{command[:8]!r} before REG or CID")

    def _begin_sync(self, token: str) -> None:
        if len(token) > _LONGEST_ID:
            raise MalformedMessage(f"SYN with a word of {len(token)} characters")
        if self._unread_answers >= _MOST_UNREAD:
            raise InvalidRequest(f"{_MOST_UNREAD} answers to SYN were not read")
        self._wait(self._answer_when_durable(token))

    async def _answer_when_durable(self, token: str) -> None:
        # Durable before told: what was published before SYN survives the machine from here on.
        await self._publishing.durable(self._door.broker.flusher)
        if self._is_lost or self._transport.is_closing():
            return
        self._write(framed(token.encode()))
        if self._transport.get_write_buffer_size():
            self._unread_answers += 1

    def _begin_log_in(self, client_id: str) -> None:
        if not 0 < len(client_id) <= _LONGEST_ID:
            raise MalformedMessage(f"a client id of {len(client_id)} characters")
        if self._session is None or self._session.client_id != client_id:
            self._count_login()
            self._wait(self._find_session(client_id))

    def _count_login(self) -> None:
        """Each leaves an answer to be read, or positions to be stored."""
        limit = self._door.settings.max_logins
        if self._logins >= limit:
            raise InvalidRequest(f"REG or CID for the {limit + 1}th time; max.logins is {limit}")
        self._logins += 1

    async def _find_session(self, client_id: str) -> None:
        self._log_in(await self._door.sessions.open(client_id, self))

    def _log_in(self, session: Session) -> None:
        if self._session is not None:
            self._door.sessions.leave(self._session, self)
        self._session = session
        self._publishing.client_id = session.client_id
        self.delivery.log_in(session)

    # Waiting

    def _store(self) -> None:
        """Store what was published. Raises MillstreamError when some of it cannot be."""
        waiting = self._publishing.store()
        if waiting is not None:
            self._wait(waiting)

    def _refuse(self, refusal: MillstreamError) -> None:
        """End the connection, but store what came before."""
        self._refusal = refusal
        try:
            self._store()
        except MillstreamError as error:
            self._refusal = error
        if self._pending is None:
            self._end(self._refusal)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._pending is None, "frames are worked off one after the other"
        self._pending = self._loop.create_task(work)
        self._pending.add_done_callback(self._resume)

    def _resume(self, task: asyncio.Task[None]) -> None:
        self._pending = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, MillstreamError):
            self._log.write(
                logging.ERROR,
                "pylogstreams: %(peer)s: the connection is closed",
                {},
                kind=type(error).__name__,
                exc_info=error,
            )
            self.hang_up(is_refusal=True)
        elif error is not None:
            self._end(error)
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self._store_and_go_on()
        if self._is_lost and self._pending is None:
            self._leave()

    def _store_and_go_on(self) -> None:
        try:
            self._store()
        except MillstreamError as error:
            self._end(error)
            return
        if self._pending is None:
            self._work()

    def _leave(self) -> None:
        """The connection is gone, and nothing that came over it is left to do."""
        self._is_ending = True
        self.delivery.close()
        self._buffer.close()
        if self._session is not None:
            self._door.sessions.leave(self._session, self)

    # Flow

    def _write(self, frames: bytes) -> None:
        if self._is_ending:
            self.delivery.hold()
            return
        self._transport.write(frames)
        if self._transport.is_closing():
            # The socket has failed, and not taken it.
            self.delivery.hold()

    def _go_on(self) -> None:
        """There is memory for the rest of a frame again."""
        if not self._is_ending:
            self._work()

    def _read_or_not(self) -> None:
        should = self._pending is None and not self._lacks_memory
        if self._is_ending or self._is_lost or self._is_finishing or should == self._is_reading:
            return
        self._is_reading = should
        if should:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _end(self, reason: MillstreamError) -> None:
        if not self._is_ending:
            self._log.write(
                logging.WARNING,
                "pylogstreams: %(peer)s: the connection is closed: %(reason)s",
                {"reason": str(reason)},
                kind=type(reason).__name__,
            )
        self.hang_up(is_refusal=True)

    # For the door

    def described(self) -> ConnectionDescription:
        return ConnectionDescription(
            number=self._peer,
            peer=self._peer,
            client="" if self._session is None else self._session.client_id,
            since_ms=self._since_ms,
            last_used_ms=self._since_ms + round((self.heard_s - self._since_s) * 1000),
            use="publishes" if self._has_published else "",
        )

    def give_way(self) -> None:
        """Another connection has logged in under the same id."""
        self._log.write(
            logging.INFO,
            "pylogstreams: %(peer)s: another connection takes over its client id",
            {},
            kind="taken over",
        )
        # What its socket has not taken goes to the other one.
        self.delivery.close()
        self.hang_up()

    def give_up_unread(self) -> None:
        """Hang up on a client that does not read, while others need the memory."""
        self._log.write(
            logging.WARNING,
            "pylogstreams: %(peer)s: the connection is closed: memory is short (max.memory.bytes), "
            "and the client leaves messages unread",
            {},
            kind="max.memory.bytes",
        )
        self._is_to_be_reset = True
        self.abort()

    def expire(self, silent_s: float) -> None:
        """Hang up on a client that was silent for so long, unless it was us who did not listen."""
        if self._is_reading and self._pending is None:
            self._log.write(
                logging.WARNING,
                "pylogstreams: %(peer)s: the connection is closed: nothing was heard for "
                "%(silent_s).1f s",
                {"silent_s": silent_s},
                kind="silent",
            )
            self.hang_up()

    def finish(self) -> None:
        """Receive no more frames and deliver no more."""
        self._is_finishing = True
        self.delivery.close()
        if self._is_reading and not (self._is_ending or self._is_lost):
            self._is_reading = False
            self._transport.pause_reading()

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was received is left to be stored."""
        return self._pending is None

    def close(self) -> None:
        """The client asks for the end: hang up when what was written is sent."""
        self._is_ending = True
        self._transport.close()

    def hang_up(self, *, is_refusal: bool = False) -> None:
        """End the connection when the client has what was delivered, or takes too long."""
        if self._is_ending:
            return
        self._is_ending = True
        if self._is_reading and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()
        self._is_to_be_reset = self._has_published or is_refusal
        self._abort_if_drained(self._loop.time() + _DRAIN_S)

    def _abort_if_drained(self, deadline_s: float) -> None:
        if self._undelivered_bytes() and self._loop.time() < deadline_s:
            self._loop.call_later(_DRAIN_STEP_S, self._abort_if_drained, deadline_s)
        else:
            self.abort()

    def abort(self) -> None:
        """Hang up now. What the client sent and was not stored, it has to know of."""
        self._is_ending = True
        # One that is closing may have given its descriptor back already.
        if self._is_to_be_reset and not self._transport.is_closing():
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._transport.abort()

    def _undelivered_bytes(self) -> int:
        """What was written and the client's system has not confirmed."""
        if self._transport.is_closing():
            return 0
        waiting = self._transport.get_write_buffer_size()
        connection = self._transport.get_extra_info("socket")
        (sent,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        return waiting + int(sent)


def _offset(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and int(text) >= LATEST):
        raise MalformedMessage(f"{text[:40]!r} is no offset: expected a number, or -1 for latest")
    return int(text)


_NO_TRANSPORT = asyncio.Transport()
