"""Clients with transactions, old and new ones, that do what they like in one order or another.

A client sends one request at a time, except that it writes to several partitions at once; when it
hears nothing it connects anew and sends the same again, or gives up and aborts; then it goes on as
if what it gave up had never been sent. It commits when all partitions that it has added have
records of its own, as librdkafka and aiokafka do. It lives on when the broker crashes.

A write is given up together with its connection, an offset commit without, as in librdkafka, which
announces each of them. (aiokafka announces a group once, and gives up no offset commit.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.broker.transaction_registry import Way
from millstream.errors import (
    MillstreamError,
    StorageFailure,
    Superseded,
    Unavailable,
    UnknownTopic,
)
from millstream.settings.names import OFFSETS_TOPIC
from millstream.transactions.commands import AddPartitions, End, InitProducer
from millstream.transactions.transaction import NO_PRODUCER, TopicPartition
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SimulatedBroker
from tests.simulation.transaction_checker import Attempt, Outcome, Pair
from tests.simulation.transaction_world import Lost, World

_OFFSETS: TopicPartition = (OFFSETS_TOPIC, 0)

Send = Callable[[SimulatedBroker, int], Awaitable[Any]]


@dataclass(eq=False)
class Request:
    """What a client wants, until it is answered."""

    what: str
    way: Way
    send: Send
    done: Callable[[Any], None]
    refused: Callable[[MillstreamError], None]
    sent_ms: int
    times_sent: int = 0
    lives: int = 0
    """To how many lives of the broker."""
    life: int = 0
    """To which it was sent last."""


@dataclass(eq=False)
class Client:
    """One process that has a producer."""

    world: World
    name: str
    is_new: bool
    """Whether it takes a new epoch with every transaction, and names no partition beforehand."""
    timeout_ms: int
    pair: Pair | None = None
    attempt: Attempt | None = None
    unanswered: list[Request] = field(default_factory=list)
    is_over: bool = False
    must_begin_anew: bool = False
    """Something was refused: only an abort or a new epoch helps."""
    _sequences: dict[tuple[str, int, bytes], int] = field(default_factory=dict)
    _added: set[TopicPartition] = field(default_factory=set)
    _connections: dict[Way, int] = field(default_factory=dict)
    _idle_since_ms: int = 0
    _is_unsure: bool = False
    """It has given up writes, and has the same epoch as then: their sequences may be used."""
    _newest: Attempt | None = None
    """The last transaction, unless it has ended well."""
    _follows_abort: bool = False
    """It has aborted and kept its epoch, and has committed no records since."""
    _began_with: tuple[int, int] = (0, 0)
    """The connection for records, and the life of the broker, when the transaction began."""

    # What it can do

    async def init(self) -> None:
        """Take the transactional id; a client that had it goes on with what it had (KIP-360)."""
        if self.attempt is not None:
            self._leave()
        command = InitProducer(self.name, self.timeout_ms, *(self.pair or (-1, -1)))

        def heard() -> None:
            # One that goes on takes nothing from anyone.
            if command.producer_id == NO_PRODUCER:
                self.world.checker.init_arrived(self.name, self)

        def send(broker: SimulatedBroker, connection: int) -> Awaitable[Any]:
            return broker.init(connection, command, heard)

        def refused(error: MillstreamError) -> None:
            # Somebody else has the transactional id.
            self.is_over = True
            self._refused(error)

        request = self._request("init", Way.COORDINATOR, send, self._initialised, refused)
        await self._try(request)

    def _initialised(self, pair: Pair) -> None:
        self.must_begin_anew = False
        self._newest = None
        self._go_on(pair)

    async def add(self, *places: TopicPartition) -> None:
        attempt, pair = self._begun()
        command = AddPartitions(self.name, *pair, frozenset(places))

        def added(_: object) -> None:
            attempt.is_begun = True
            self._added.update(places)

        await self._ask("add", Way.COORDINATOR, lambda b, c: b.add(c, command), added)

    async def write(self, place: TopicPartition) -> None:
        """An old client that has not added the partition is at fault, and is to be refused."""
        attempt, pair = self._begun()
        value = attempt.next_value()
        sequence = self._sequences.get((*place, self._topic_id(place)), 0)
        request: Request

        def stored(result: tuple[bytes, int]) -> None:
            topic_id, offset = result
            attempt.is_begun = True
            attempt.stored[value] = (topic_id, place[1]), offset
            # It may be another topic of that name than when this was sent first.
            self._sequences[*place, topic_id] = sequence + 1

        def refused(error: MillstreamError) -> None:
            if request.times_sent == 1:
                self.world.checker.refused(value)
            # What a crash has undone cannot be sent again.
            is_again = request.lives > 1
            may_be = is_again or self._is_unsure or not self.has_added(place) or self._has_moved
            self._refused(error, may_be=may_be)

        def send(broker: SimulatedBroker, connection: int) -> Awaitable[Any]:
            return broker.write(
                connection,
                self.name,
                pair,
                place,
                sequence=sequence,
                value=value,
                adds=self.is_new,
            )

        request = self._request("write", Way.RECORDS, send, stored, refused)
        await self._try(request)

    async def commit_offset(self) -> None:
        """Only after `add_offsets` for an old client."""
        attempt, pair = self._begun()
        offset = self.world.checker.next_offset(attempt)

        self._added.discard(_OFFSETS)

        def committed(_: object) -> None:
            attempt.is_begun = True
            attempt.offset = offset

        def send(broker: SimulatedBroker, connection: int) -> Awaitable[Any]:
            return broker.commit_offset(connection, self.name, pair, offset, adds=self.is_new)

        await self._ask("commit offset", Way.OFFSETS, send, committed)

    async def add_offsets(self) -> None:
        await self.add(_OFFSETS)

    async def end(self, *, is_commit: bool) -> None:
        attempt, pair = self._begun()
        command = End(self.name, *pair, is_commit, bumps_epoch=self.is_new)
        attempt.is_commit_sent |= is_commit
        request: Request

        def ended(pair: Pair) -> None:
            attempt.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
            if not is_commit:
                self._follows_abort = not self.is_new
            elif attempt.stored:
                self._follows_abort = False
            self.attempt = self._newest = None
            self.must_begin_anew = self.must_begin_anew and not self.is_new
            self._added.clear()
            self._go_on(pair)

        def refused(error: MillstreamError) -> None:
            self._refused(error)
            if request.times_sent == 1:
                # It was never decided, and now it cannot be.
                attempt.outcome = Outcome.ABORTED
            self._leave()

        what = "commit" if is_commit else "abort"
        request = self._request(
            what, Way.COORDINATOR, lambda b, c: b.end(c, command), ended, refused
        )
        await self._try(request)

    async def repeat(self) -> None:
        """Send again what was not answered."""
        if any(each.way is Way.OFFSETS for each in self.unanswered):
            self._connections[Way.OFFSETS] = self.world.connect()
        await asyncio.gather(*map(self._try, tuple(self.unanswered)))

    @property
    def may_give_up(self) -> bool:
        return (
            self.attempt is not None
            and self.attempt.is_begun
            and all(each.way is not Way.COORDINATOR for each in self.unanswered)
        )

    async def give_up(self) -> None:
        """Abort, and never mind what was not answered."""
        self._is_unsure = self._is_unsure or bool(self.unanswered)
        self.unanswered.clear()
        await self.end(is_commit=False)

    @property
    def unwritten(self) -> list[TopicPartition]:
        """Partitions that it has added and not written to: it does not commit with any."""
        if self.attempt is None or self.is_new:
            return []
        written = {place for place, _ in self.attempt.stored.values()}
        added = sorted(self._added - {_OFFSETS})
        return [each for each in added if (self._topic_id(each), each[1]) not in written]

    @property
    def _has_moved(self) -> bool:
        """Whether its records, after an abort, come through another connection than before."""
        now = self._connections.get(Way.RECORDS, 0), self.world.life
        return self._follows_abort and now != self._began_with

    def has_added(self, place: TopicPartition) -> bool:
        return self.is_new or place in self._added

    @property
    def has_added_offsets(self) -> bool:
        return self.has_added(_OFFSETS)

    # How it does it

    def _begun(self) -> tuple[Attempt, Pair]:
        assert self.pair is not None
        if self.attempt is None:
            self.attempt = self._newest = self.world.checker.begin(
                self.name, self.pair, now_ms=self.world.clock.now_ms(), timeout_ms=self.timeout_ms
            )
            connection = self._connections.setdefault(Way.RECORDS, self.world.connect())
            self._began_with = connection, self.world.life
        return self.attempt, self.pair

    def _leave(self) -> None:
        """No end of the transaction is waited for any more."""
        self.attempt = None
        self._added.clear()

    def _go_on(self, pair: Pair) -> None:
        self.world.checker.given(pair, self)
        if pair != self.pair:
            self._sequences.clear()
            self._is_unsure = self._follows_abort = False
        self.pair = pair

    def _topic_id(self, place: TopicPartition) -> bytes:
        try:
            return self.world.broker.topics.get(place[0]).topic_id
        except UnknownTopic:
            return b""

    async def _ask(self, what: str, way: Way, send: Send, done: Callable[[Any], None]) -> None:
        await self._try(self._request(what, way, send, done, self._refused))

    def _request(
        self,
        what: str,
        way: Way,
        send: Send,
        done: Callable[[Any], None],
        refused: Callable[[MillstreamError], None],
    ) -> Request:
        request = Request(what, way, send, done, refused, self.world.clock.now_ms())
        self.unanswered.append(request)
        return request

    async def _try(self, request: Request) -> None:
        request.times_sent += 1
        request.lives += request.life != self.world.life
        request.life = self.world.life
        connection = self._connections.setdefault(request.way, self.world.connect())
        try:
            answer = await self.world.deliver(
                lambda broker: request.send(broker, connection),
                name=self.name,
                what=request.what,
                is_first=self.world.checker.is_new(self.name),
            )
        except Superseded:
            self._connections[request.way] = self.world.connect()
        except Lost:
            if request.way is not Way.OFFSETS:
                self._connections[request.way] = self.world.connect()
        except (Unavailable, StorageFailure):
            pass  # to be tried again: the topic may have been deleted under it
        except MillstreamError as error:
            # What a dead broker says is not heard.
            self.world.check_alive()
            self._answered(request)
            request.refused(error)
        else:
            self._answered(request)
            if request.what in ("init", "commit", "abort"):
                self._idle_since_ms = request.sent_ms
            request.done(answer)

    def _answered(self, request: Request) -> None:
        # Nothing is asked twice at a time.
        self.unanswered.remove(request)

    def _refused(self, error: MillstreamError, *, may_be: bool = False) -> None:
        """Told that it cannot be: there must be a reason."""
        self.must_begin_anew = True
        if may_be or isinstance(error, UnknownTopic):
            return
        world, attempt = self.world, self._newest
        now_ms = world.clock.now_ms()
        if not world.checker.is_alone(self.name, self):
            return
        if attempt is not None and now_ms - attempt.began_ms >= attempt.timeout_ms:
            return
        if now_ms - self._idle_since_ms >= world.broker.settings.transactions.id_expiration_ms:
            return
        raise Violation(
            f"{attempt or self.name} was refused for no reason: {type(error).__name__}: {error}"
        )
