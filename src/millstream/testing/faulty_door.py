"""A Kafka door with faults: what clients of a broker in trouble see.

A request that meets a fault is taken alone, as Kafka takes every request of a connection: those
before it are answered first, and those behind it wait until it is. A connection on which a request
is never answered stays silent from there on, until its client hangs up.

Invariant: without a rule for its API a request goes the way that it goes in any broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from millstream.broker.broker import Broker
from millstream.broker.topics import Topics
from millstream.client.kafka.error_codes import name_of
from millstream.errors import InvalidRequest, MillstreamError, RefusedByBroker
from millstream.gateways.kafka.answers import Parts
from millstream.gateways.kafka.connection import Connection
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.listener import Door
from millstream.gateways.kafka.routes import ROUTES, Route
from millstream.protocol.apis import is_flexible, response_class
from millstream.protocol.codec import decode_prefix, encode_parts
from millstream.protocol.headers import read_client_id, response_header
from millstream.protocol.messages import fetch, produce
from millstream.protocol.notation import Struct
from millstream.settings.kafka import KafkaSettings
from millstream.testing.fault_rules import Action, FaultRules, Place, Rule, of_action
from millstream.testing.faulty_topics import FaultyTopics
from millstream.testing.refusals import holds_code, mark, merge, refusal, tells_errors_by_place
from millstream.testing.request_places import PlaceReader, has_places

_log = logging.getLogger(__name__)

_METADATA = 3
_BY_HAND: Mapping[int, Callable[[memoryview, int, int], Any]] = {
    produce.API_KEY: produce.parse_request,
    fetch.API_KEY: fetch.parse_request,
}


class FaultyDoor(Door):
    """Listens for Kafka clients, and treats them as the rules say."""

    def __init__(self, broker: Broker, settings: KafkaSettings, rules: FaultRules) -> None:
        self.rules = rules
        self.topics = FaultyTopics(broker.topics, rules)
        self.places = PlaceReader(broker.topics)
        super().__init__(replace(broker, topics=cast("Topics", self.topics)), settings)

    def new_connection(self) -> Connection:
        return FaultyConnection(self)


def new_faulty_door(broker: Broker, settings: KafkaSettings, rules: FaultRules) -> FaultyDoor:
    """The door of a broker, which may also trace."""
    if broker.tracing is None:
        return FaultyDoor(broker, settings, rules)
    from millstream.gateways.kafka.traced_door import TracedDoor

    class FaultyTracedDoor(FaultyDoor, TracedDoor):
        """Traces what it does, and treats clients as the rules say."""

    return FaultyTracedDoor(broker, settings, rules)


class _Request(NamedTuple):
    """A request that has met some rules."""

    frame: bytearray
    api_key: int
    version: int
    correlation_id: int
    places: Sequence[Place]
    rules: list[Rule]


class FaultyConnection(Connection):
    """The broker's end of a connection, in a broker with faults."""

    def __init__(self, door: FaultyDoor) -> None:
        super().__init__(door)
        self._faulty_door = door
        self._is_held = False
        self._is_silent = False
        self._instead_of_answer: Callable[[], None] | None = None
        self._answered = asyncio.Event()

    def buffer_updated(self, nbytes: int) -> None:
        # What is said to one who is silent is lost.
        if not self._is_silent:
            super().buffer_updated(nbytes)

    def _begin(self, raw: bytearray, view: memoryview, start: int, end: int) -> bool:
        api_key = int.from_bytes(view[start : start + 2])
        rules = self._faulty_door.rules
        if rules.might_meet(api_key):
            frame = bytearray(view[start:end])
            version = int.from_bytes(frame[2:4])
            places = self._places(api_key, version, memoryview(frame))
            if met := rules.meet(api_key, places):
                correlation_id = int.from_bytes(frame[4:8], signed=True)
                self._producing.flush()
                self._hold(_Request(frame, api_key, version, correlation_id, places, met))
                return True
        return super()._begin(raw, view, start, end)

    def _places(self, api_key: int, version: int, frame: memoryview) -> Sequence[Place]:
        """What a request touches; nothing if it cannot be read, which is told elsewhere."""
        reader = self._faulty_door.places
        try:
            _, position = read_client_id(frame, flexible=is_flexible(api_key, version))
            if (parse := _BY_HAND.get(api_key)) is not None:
                return [
                    Place(reader.name_of(topic.topic), partition.partition)
                    for topic in parse(frame, position, version).topics
                    for partition in topic.partitions
                ]
            route = ROUTES.get(api_key)
            if route is None or not route.oldest <= version <= route.newest:
                return []
            request, _ = decode_prefix(route.request, version, frame, position)
        except MillstreamError:
            return []
        return reader.places(request, version)

    # One request at a time

    @property
    def _is_clogged(self) -> bool:
        return self._is_held or super()._is_clogged

    def _hold(self, request: _Request) -> None:
        self._is_held = True
        task = asyncio.get_running_loop().create_task(self._carry_out(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, request: _Request) -> None:
        try:
            await self._line_is_empty()
            await self._suffer(request)
            await self._line_is_empty()
        except InvalidRequest as error:
            self._end(str(error), kind=type(error).__name__)
        except Exception:  # Outer edge: a bug in one request is no matter for other connections.
            _log.exception("a request with a fault failed; the connection is closed")
            self._producing.drop()
            self._abort()
        if self._instead_of_answer is not None:
            # There was no answer to be sent.
            self._instead_of_answer()
        if not self._is_silent:
            self._is_held = False
            self._go_on()

    async def _line_is_empty(self) -> None:
        while self._answers.unanswered and not self._is_ending:
            self._answered.clear()
            await self._answered.wait()

    async def _suffer(self, request: _Request) -> None:
        """Do to a request what its rules say, in the order of what takes effect first."""
        for rule in of_action(request.rules, "delay"):
            await _either(rule.gone.wait(), asyncio.sleep(rule.seconds))
        if request.api_key != fetch.API_KEY:
            for rule in of_action(request.rules, "stall"):
                await rule.gone.wait()
        effects: dict[Action, Callable[[], None]] = {
            "drop": self._fall_silent,
            "disconnect": self._abort,
        }
        for action, effect in effects.items():
            rules = of_action(request.rules, action)
            if any(not rule.after_work for rule in rules):
                effect()
                return
            if rules:
                self._instead_of_answer = effect
        if refusing := of_action(request.rules, "refuse"):
            await self._refuse(request, refusing[0])
        else:
            self._work_off(request)

    def _work_off(self, request: _Request) -> None:
        frame = request.frame
        if request.api_key in ROUTES:
            # It has waited long enough.
            self._door.admission.take(len(frame))
            self._dispatch(
                memoryview(frame), request.api_key, request.version, request.correlation_id
            )
        else:
            super()._begin(frame, memoryview(frame), 0, len(frame))
        self._producing.flush()

    def _write(self, parts: Parts) -> None:
        instead, self._instead_of_answer = self._instead_of_answer, None
        if instead is not None:
            instead()
        elif not self._is_silent:
            super()._write(parts)
        self._answered.set()

    def _fall_silent(self) -> None:
        self._instead_of_answer = None
        self._is_silent = True
        if not (self._is_reading or self._is_ending):
            # Only who reads hears that the other side has hung up.
            self._is_reading = True
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._answered.set()

    # Refusing

    async def _refuse(self, request: _Request, rule: Rule) -> None:
        if request.api_key in _BY_HAND:

            def judge(place: Place) -> MillstreamError | None:
                return _refusal_of(rule) if rule.covers(place) else None

            with self._faulty_door.topics.refusing(judge):
                self._work_off(request)
            return
        route = ROUTES.get(request.api_key)
        if route is None:
            # ApiVersions: a client that cannot agree on versions is hung up on.
            self._abort()
            return
        flexible = is_flexible(request.api_key, request.version)
        client_id, position = read_client_id(request.frame, flexible=flexible)
        body, _ = decode_prefix(route.request, request.version, memoryview(request.frame), position)
        answer = await self._refused(request, rule, route, body, client_id or "")
        header = response_header(request.correlation_id, flexible=flexible)
        content = b"".join([header, *encode_parts(answer, request.version)])
        self._answers.send([len(content).to_bytes(4) + content])

    async def _refused(
        self, request: _Request, rule: Rule, route: Route, body: Struct, client_id: str
    ) -> Struct:
        """The answer that refuses what the rule covers, and does the rest."""
        version = request.version
        context = Context(
            self._door.broker,
            version,
            client_id,
            self._client_host,
            self._number,
            self._advertised,
        )
        reader = self._faulty_door.places
        hit = reader.part(body, version, rule.covers) if rule.topic is not None else body
        refused = refusal(response_class(request.api_key), hit, rule.error_code, version)
        asks_for_all = rule.topic is not None and Place(None) in request.places
        if asks_for_all or not holds_code(refused):
            answer = await route.handle(body, context)
            mark(answer, rule.error_code, rule.topic)
            return answer
        if not tells_errors_by_place(refused):
            return refused
        rest = reader.part(body, version, lambda place: not rule.covers(place))
        if not has_places(rest) and request.api_key != _METADATA:
            return refused
        answer = await route.handle(rest, context)
        merge(answer, refused)
        return answer


def _refusal_of(rule: Rule) -> MillstreamError:
    return RefusedByBroker(
        operation="it", code=rule.error_code, name=name_of(rule.error_code), detail="a fault"
    )


async def _either(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for what comes first."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
