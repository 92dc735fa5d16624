"""One client's connection: cuts what it receives into requests, and hands each to its handler.

Requests are begun in the order in which they came and answered in that order, also when one of
them has to wait. A request that cannot be understood ends the connection, with a line in the log.

Backpressure: a connection is not read while its client leaves answers unread, has too many
requests unanswered, needs memory for a large request that others use, or has to wait until its next
request may begin (see Admission).
Only produce requests may be large: what others consist of is taken apart into many small objects.
Cost: benchmarks/small_requests.py.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from millstream.broker.connections import ConnectionDescription
from millstream.errors import (
    InvalidRequest,
    MalformedMessage,
    MillstreamError,
    Superseded,
    TooManyElements,
    UnsupportedVersion,
)
from millstream.gateways.connection_log import ConnectionLog
from millstream.gateways.kafka.admission import SMALL_BYTES
from millstream.gateways.kafka.answers import Answers, Parts, Place
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.eager import run_eagerly
from millstream.gateways.kafka.frame_size import bad_size, too_large
from millstream.gateways.kafka.handlers import (
    api_versions,
    fetch,
    join_group,
    produce,
    sync_group,
)
from millstream.gateways.kafka.replies import answer, framed, refusal
from millstream.gateways.kafka.request_times import RequestTimes
from millstream.gateways.kafka.routes import ANNOUNCED, ROUTES, Route
from millstream.gateways.receive_buffer import ReceiveBuffer
from millstream.protocol.apis import is_flexible
from millstream.protocol.codec import decode_prefix
from millstream.protocol.headers import read_client_id, response_header

if TYPE_CHECKING:
    from millstream.gateways.kafka.listener import Door

_log = logging.getLogger(__name__)

_SIZE_BYTES = 4
_FIXED_HEADER_BYTES = 8
_OLDEST_PRODUCE, _NEWEST_PRODUCE = produce.VERSIONS
_OLDEST_FETCH, _NEWEST_FETCH = fetch.VERSIONS
# Then other connections have their turn, and signals. Those that only bring records are cheap, and
# are not counted.
_TURN_REQUESTS = 20
# ApiVersions is answered without admission; a real request holds two short strings.
_API_VERSIONS_BYTES = 16 << 10
# They wait for other members of a group.
_WAITING = {join_group.API_KEY, sync_group.API_KEY}


class _Pending(NamedTuple):
    """A request that a task is at work on."""

    place: Place
    header: bytes
    size: int
    api_key: int
    began_ns: int


class Connection(asyncio.BufferedProtocol):
    """The broker's end of one connection."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._number = door.broker.transactions.connections.next()
        self._buffer = ReceiveBuffer(door.pool)
        self._answers = Answers(self._write)
        self._times = RequestTimes(
            door.broker.metrics.requests, lambda: (self._peer, self._client_id)
        )
        self._producing = door.new_producing(
            self._answers,
            topics=door.broker.topics,
            cycle=door.cycle,
            flusher=door.broker.flusher,
            transactions=door.broker.transactions,
            connection=self._number,
            max_unpacked_bytes=door.broker.settings.storage.max_decompressed_bytes,
            hang_up=lambda reason: self._end(reason, kind="acks=0"),
            hold=self._hold_for,
            clock=door.broker.clock,
            times=self._times,
        )
        self._fetching = fetch.Fetching(
            self._answers,
            topics=door.broker.topics,
            max_bytes=door.settings.fetch_max_bytes,
            times=self._times,
            new_fetch=door.new_fetch,
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._peer = "?"
        self._log = ConnectionLog(door.broker.client_log, _log)
        self._client_host = ""
        self._advertised = ("", 0)
        self._unread = False
        # Why that is so: the client does not read, or what follows must wait for a request.
        self._is_write_paused = False
        # Of answers in several slices, since the client has last taken all.
        self._built_bytes = 0
        self._is_repacking = False
        self._lacks_memory = False
        self._must_wait = False
        self._is_busy = self._was_large = False
        self._turn_left = 0
        self._has_more = False
        self._will_go_on = False
        self._is_reading = True
        self._is_finishing = False
        self._is_ending = False
        self.last_used_ms = self._since_ms = door.broker.clock.now_ms()
        self._client_id = ""
        # When what lies in the buffer began to lie there, or before.
        self._waits_since_ms = self.last_used_ms

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=self._door.settings.unsent_max_bytes)
        host, port = (*(transport.get_extra_info("peername") or ("?", 0)),)[:2]
        self._peer = self._log.peer = f"{host}:{port}"
        self._client_host = f"/{host}"
        self._advertised = self._door.advertised(transport.get_extra_info("sockname"))
        if not self._door.admit(self):
            self._end(
                "there are as many connections as max.connections allows", kind="max.connections"
            )
        _log.debug("kafka: %(peer)s: connected", {"peer": self._peer})

    def connection_lost(self, exc: Exception | None) -> None:
        _log.debug("kafka: %(peer)s: gone: %(error)s", {"peer": self._peer, "error": exc})
        self._is_ending = True
        self._door.connections.discard(self)
        self._fetching.close()
        for task in self._tasks:
            task.cancel()
        self._door.pool.leave(self._go_on)
        self._door.admission.leave(self._go_on)
        self._door.broker.memory.resume(self)
        self._buffer.close()

    def eof_received(self) -> None:
        # The transport now closes itself, once what was written is sent.
        self._is_ending = True

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio says so
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._buffer.end += nbytes
        self._work()

    def pause_writing(self) -> None:
        self._is_write_paused = self._unread = True
        self._read_or_not()
        # Fetched records are views of files, which cost no memory of ours; other answers do.
        most_bytes = max(self._door.settings.unsent_max_bytes, self._built_bytes)
        unsent_bytes = self._transport.get_write_buffer_size()
        self._door.broker.memory.stall(self, min(unsent_bytes, most_bytes))

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._built_bytes = 0
        self._unread = self._is_repacking
        self._door.broker.memory.resume(self)
        self._go_on()

    # Requests

    def _work(self) -> None:
        """Begin all requests that are there in full, as far as there is room for their answers."""
        self._times.begin()
        buffer = self._buffer
        raw, view, start, end = buffer.raw, buffer.view, buffer.start, buffer.end
        needed = _SIZE_BYTES
        self._turn_left = _TURN_REQUESTS
        self._must_wait = False
        try:
            while self._turn_left and end - start >= _SIZE_BYTES and not self._is_clogged:
                (size,) = _unpack_size(view, start)
                if not _FIXED_HEADER_BYTES <= size <= self._door.settings.request_max_bytes:
                    raise bad_size(size, self._door.settings.request_max_bytes)
                needed = _SIZE_BYTES + size
                if end - start < needed:
                    if size > self._door.settings.control_request_max_bytes:
                        needed = self._worth(view, start, end, size)
                    break
                if not self._begin(raw, view, start + _SIZE_BYTES, start + needed):
                    self._must_wait = True
                    break
                start += needed
                needed = _SIZE_BYTES
            self._producing.flush()
        except InvalidRequest as error:
            self._producing.flush()
            # A client that has given the connection up has done no wrong.
            is_usual = isinstance(error, Superseded)
            level = logging.INFO if is_usual else logging.WARNING
            self._end(str(error), level=level, kind=type(error).__name__)
        except Exception as error:  # Outer edge: other connections go on after a bug in a request.
            self._producing.drop()
            self._fail(error)
        if self._is_ending:
            buffer.close()
        else:
            self._keep(start, needed)

    def _keep(self, start: int, needed: int) -> None:
        """Keep what is behind the requests that were begun, and see to it that it gets its turn."""
        buffer = self._buffer
        left = buffer.end - start
        self.last_used_ms = self._door.broker.clock.now_ms()
        if start != buffer.start or not left:
            self._waits_since_ms = self.last_used_ms
        buffer.start = start
        self._lacks_memory = not buffer.settle(max(needed, left))
        if self._was_large and not left:
            # Only records come again and again: for other requests no large buffer is kept.
            buffer.release()
            self._was_large = False
        if self._lacks_memory:
            self._door.pool.wait(self._go_on)
        self._has_more = left > 0 and not self._turn_left
        if self._has_more:
            self._go_on_soon()
        self._read_or_not()

    def _worth(self, view: memoryview, start: int, end: int, size: int) -> int:
        """How much to make room for when a large request has begun to arrive."""
        if end - start < _SIZE_BYTES + 2:
            return _SIZE_BYTES + 2
        (api_key,) = _unpack_api_key(view, start + _SIZE_BYTES)
        self._check_size(api_key, size)
        return _SIZE_BYTES + size

    def _check_size(self, api_key: int, size: int) -> None:
        """Raises InvalidRequest: only records may be large, for they are not taken apart."""
        limit = self._door.settings.control_request_max_bytes
        if size > limit and api_key != produce.API_KEY:
            raise too_large(api_key, size, limit)

    def _begin(self, raw: bytearray, view: memoryview, start: int, end: int) -> bool:
        """Begin one request, unless it has to wait. Hot: produce requests come by the thousand."""
        api_key, version, correlation_id = _unpack_header(view, start)
        if api_key == produce.API_KEY and _OLDEST_PRODUCE <= version <= _NEWEST_PRODUCE:
            self._producing.add(raw, view, start, end, version, correlation_id)
            return True
        self._turn_left -= 1
        # What was asked before comes first.
        self._producing.flush()
        self._check_size(api_key, end - start)
        frame = view[start:end]
        if api_key == fetch.API_KEY and _OLDEST_FETCH <= version <= _NEWEST_FETCH:
            self._fetching.begin(frame, version, correlation_id)
        elif api_key == api_versions.API_KEY:
            if len(frame) > _API_VERSIONS_BYTES:
                raise MalformedMessage(f"ApiVersions of {len(frame)} bytes")
            self._answers.send(api_versions.answer(frame, version, correlation_id, ANNOUNCED))
            if version <= api_versions.VERSIONS[1]:
                # Who only sends and fetches names itself nowhere else that is looked at.
                self._client_id = read_client_id(frame, flexible=False)[0] or ""
            self._times.answered(api_key, self._times.began_ns)
        elif self._door.admission.admit(len(frame), self._go_on):
            self._dispatch(frame, api_key, version, correlation_id)
        else:
            return False
        return True

    def _dispatch(self, frame: memoryview, api_key: int, version: int, correlation_id: int) -> None:
        """Begin a request that was admitted."""
        self._was_large = (size := len(frame)) > SMALL_BYTES
        try:
            pending = self._run(frame, api_key, version, correlation_id)
        except BaseException:
            self._door.admission.release(size)
            raise
        if pending is None or api_key in _WAITING:
            self._door.admission.release(size)
        else:
            # It works in slices, and has perhaps not done yet what it is to do before the next.
            self._is_busy = size > SMALL_BYTES

    def _run(
        self, frame: memoryview, api_key: int, version: int, correlation_id: int
    ) -> _Pending | None:
        """Answer a request, or begin to: then what is to be answered."""
        route = ROUTES.get(api_key)
        if route is None or not route.oldest <= version <= route.newest:
            raise UnsupportedVersion(api_key=api_key, version=version)
        flexible = is_flexible(api_key, version)
        client_id, position = read_client_id(frame, flexible=flexible)
        self._client_id = client_id or ""
        header = response_header(correlation_id, flexible=flexible)
        # Bytes after a request's end are let be, as Kafka does: librdkafka asks for all topics with
        # a request that has three too many.
        try:
            request, _ = decode_prefix(
                route.request,
                version,
                frame,
                position,
                max_elements=self._door.settings.request_max_elements,
            )
        except TooManyElements as error:
            self._answers.send(framed(header, [refusal(error, api_key, version)]))
            self._log.write(
                logging.WARNING,
                "kafka: %(peer)s: %(api)s is refused: %(reason)s",
                {"api": route.name, "reason": error},
                kind=f"{route.name} {type(error).__name__}",
            )
            return None
        context = Context(
            self._door.broker,
            version,
            self._client_id,
            self._client_host,
            self._number,
            self._advertised,
        )
        body, task = run_eagerly(answer(route, request, context))
        if task is None:
            assert body is not None
            self._note_built(body)
            self._answers.send(framed(header, body))
            self._times.answered(api_key, self._times.began_ns)
            return None
        place = self._answers.take_place(request_bytes=len(frame))
        pending = _Pending(place, header, len(frame), api_key, self._times.began_ns)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finish(done, route, pending))
        return pending

    def _finish(self, task: asyncio.Task[list[bytes]], route: Route, pending: _Pending) -> None:
        self._tasks.discard(task)
        if pending.api_key not in _WAITING:
            self._door.admission.release(pending.size)
            self._is_busy = False
        if task.cancelled() or self._is_ending:
            return
        error = task.exception()
        if error is not None:
            self._log.write(
                logging.ERROR,
                "kafka: %(peer)s: %(api)s failed; the connection is closed: %(error)s",
                {"api": route.name, "error": error},
                kind=f"{route.name} {type(error).__name__}",
                exc_info=None if isinstance(error, MillstreamError) else error,
            )
            self._abort()
            return
        self._note_built(task.result())
        pending.place.fill(framed(pending.header, task.result()))
        if pending.api_key in _WAITING:
            self._times.answered_after_wait(pending.api_key, pending.began_ns)
        else:
            self._times.answered(pending.api_key, pending.began_ns)

    def _note_built(self, body: list[bytes]) -> None:
        """An answer without records is about to be written."""
        if len(body) > 1:
            if not self._transport.get_write_buffer_size():
                self._built_bytes = 0
            self._built_bytes += sum(map(len, body))

    def _hold_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin no request until something is done."""
        self._is_repacking = self._unread = True
        task = asyncio.get_running_loop().create_task(self._door.repack(work))
        self._tasks.add(task)
        task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._is_repacking = False
        self._unread = self._is_write_paused
        if task.cancelled() or self._is_ending:
            return
        error = task.exception()
        if isinstance(error, InvalidRequest):
            self._end(str(error), kind=type(error).__name__, level=logging.INFO)
        elif error is not None:
            self._fail(error)
        else:
            self._go_on()

    # Flow

    @property
    def _is_clogged(self) -> bool:
        """Whether there are too many answers that the client has not taken, or is a large one."""
        answers, settings = self._answers, self._door.settings
        return (
            self._unread
            or self._is_busy
            or answers.unanswered >= settings.pipelined_max_requests
            or answers.held_bytes > settings.unsent_max_bytes
        )

    def _write(self, parts: Parts) -> None:
        if self._is_ending:
            return
        # Not writelines: before Python 3.13.2 asyncio's own forgets to call pause_writing after it
        # (CVE-2024-12254). uvloop gathers the parts into one system call either way.
        for part in parts:
            self._transport.write(part)
        if not self._is_reading:
            # Perhaps there is room for more requests now.
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """When others have had their turn; once, however often it is asked for until then."""
        if not self._will_go_on:
            self._will_go_on = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Work off what lies in the buffer, then read on, if what stood in the way is gone."""
        self._will_go_on = False
        if not (self._is_ending or self._is_finishing or self._is_clogged):
            self._work()

    def _read_or_not(self) -> None:
        should = not (self._is_clogged or self._lacks_memory or self._must_wait or self._has_more)
        if self._is_ending or self._is_finishing or should == self._is_reading:
            return
        self._is_reading = should
        if should:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _end(self, reason: str, *, kind: str, level: int = logging.WARNING) -> None:
        self._log.write(
            level,
            "kafka: %(peer)s: the connection is closed: %(reason)s",
            {"reason": reason},
            kind=kind,
        )
        self._is_ending = True
        # Answers to what came before are still sent.
        self._transport.close()

    def _fail(self, error: BaseException) -> None:
        """A defect: hang up at once."""
        self._log.write(
            logging.ERROR,
            "kafka: %(peer)s: a request failed; the connection is closed",
            {},
            kind=type(error).__name__,
            exc_info=error,
        )
        self._abort()

    def _abort(self) -> None:
        self._is_ending = True
        self._transport.abort()

    # For the door

    def described(self) -> ConnectionDescription:
        return ConnectionDescription(
            number=str(self._number),
            peer=self._peer,
            client=self._client_id,
            since_ms=self._since_ms,
            last_used_ms=self.last_used_ms,
            use="",
        )

    def rest(self) -> None:
        """A while has gone by: let go of what is not needed."""
        if self._is_ending:
            # The client had its time to take the last answers.
            self._abort()
        else:
            self._buffer.release()

    def expire(self) -> None:
        """Hang up on a client that has not asked for anything in a long time."""
        if self.is_idle:
            self._log.write(
                logging.INFO,
                "kafka: %(peer)s: the connection was idle and is closed",
                {},
                kind="idle",
            )
            # A client that has not taken its answers in all that time will not take them now.
            self._abort()

    @property
    def hoards_since_ms(self) -> int | None:
        """Since when it has kept memory for a request that does not get on; None if it does not."""
        is_slow = self._buffer.is_hoarding and not self._must_wait
        return self._waits_since_ms if is_slow else None

    def give_way(self) -> None:
        """Hang up on a client that keeps memory which others wait for."""
        self._log.write(
            logging.WARNING,
            "kafka: %(peer)s: the connection is closed: memory for requests is short, "
            "and its request did not arrive within millstream.request.receive.max.ms",
            {},
            kind="receive.max.ms",
        )
        self._abort()
        self._buffer.close()

    def give_up_unread(self) -> None:
        """Hang up on a client that does not read, while others need the memory."""
        self._log.write(
            logging.WARNING,
            "kafka: %(peer)s: the connection is closed: memory is short (max.memory.bytes), and "
            "the client leaves answers unread",
            {},
            kind="max.memory.bytes",
        )
        self._abort()

    def finish(self) -> None:
        """Answer waiting fetches with what there is, and take no more requests."""
        self._is_finishing = True
        self._fetching.hurry()
        if self._is_reading and not self._is_ending:
            self._transport.pause_reading()
        self._is_reading = False

    @property
    def unanswered(self) -> int:
        """How many requests wait to be answered."""
        return self._answers.unanswered

    @property
    def held_bytes(self) -> int:
        """See Answers."""
        return self._answers.held_bytes

    @property
    def fetches_waiting(self) -> int:
        """How many fetches wait for data."""
        return self._fetching.waiting

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return not self._answers.unanswered

    def close(self) -> None:
        """Hang up when what was written is sent."""
        self._is_ending = True
        self._transport.close()

    def abort(self) -> None:
        """Hang up now."""
        self._abort()


_unpack_size = struct.Struct(">i").unpack_from
_unpack_header = struct.Struct(">hhi").unpack_from
_unpack_api_key = struct.Struct(">h").unpack_from
_NO_TRANSPORT = asyncio.Transport()
