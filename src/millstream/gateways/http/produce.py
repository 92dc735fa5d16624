"""Sending messages that came in a request, whatever its body is: JSON, lines of JSON, or bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from millstream.broker.sending import NewRecord, Sent
from millstream.broker.topics import Topic
from millstream.errors import (
    InvalidRequest,
    MalformedMessage,
    MillstreamError,
    UnknownTopic,
    UnsupportedMediaType,
)
from millstream.gateways.http import json_text
from millstream.gateways.http.bodies import check_not_encoded, lines_of, whole_body
from millstream.gateways.http.context import Context, context_of
from millstream.gateways.http.excerpt import excerpt
from millstream.gateways.http.message_shapes import (
    TEXT,
    check_encoding,
    new_record,
    new_records,
    sent_shape,
    whole,
    with_delivery,
)
from millstream.gateways.http.parameters import check_parameters
from millstream.gateways.http.problems import answer_of, problem_of
from millstream.settings.topics import MAX_PARTITIONS

JSON = "application/json"
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
BYTES = ("application/octet-stream", "text/plain")
FORM = "application/x-www-form-urlencoded"
KINDS = f"{JSON}, {LINES[0]}, {' or '.join(BYTES)}"

KEY_HEADER = "millstream-key"
HEADER_PREFIX = "millstream-header-"

_ONE_BATCH = 1000
_ONE_BATCH_BYTES = 1 << 20
_MOST_IN_JSON = 10_000
_MOST_TOLD = 10_000
_WHOLE_NUMBERS = ("partition", "timestamp", "deliver_at", "deliver_after")
_OF_JSON = ("encoding",)
_OF_BYTES = ("key", "header", *_WHOLE_NUMBERS)
PARAMETERS = (*_OF_JSON, *_OF_BYTES)


async def produce(request: Request, topic: str, *, new_partitions: int = -1) -> Response:
    """Store what a request holds; answer when it is on disk. Hot: benchmarks/http.py.

    A topic that is created has `new_partitions`; -1 is as many as the broker is set to.
    """
    context = context_of(request)
    kind = JSON
    for name, value in request.scope["headers"]:
        if name == b"content-type":
            kind = value.decode("latin-1")
        elif name == b"content-encoding":
            check_not_encoded(request)
    if kind != JSON:
        kind = kind.partition(";")[0].strip().lower()
        if kind in LINES:
            return await _produce_lines(request, topic, context, new_partitions)
        if kind in BYTES:
            return await _produce_bytes(request, topic, context, new_partitions)
        if kind == FORM:
            return await _produce_form(request, topic, context, new_partitions)
        if kind != JSON and not kind.endswith("+json"):
            raise UnsupportedMediaType(kind, expected=KINDS)
    body = await _parsed_body(request, topic, context)
    return await _produce_json(request, topic, context, body, new_partitions)


async def _parsed_body(request: Request, topic: str, context: Context) -> Any:
    body = await whole_body(request, context.settings.request_max_bytes)
    if len(body) <= json_text.SMALL_BYTES:
        return json_text.parse_small(body)
    # That much is not worth the work if it cannot be stored.
    context.broker.sender.check(topic)
    return await json_text.parse(body)


async def _produce_form(
    request: Request, topic: str, context: Context, new_partitions: int
) -> Response:
    """JSON from somebody who did not say so: `curl -d` calls whatever it sends a form."""
    try:
        body = await _parsed_body(request, topic, context)
    except MalformedMessage:
        body = None
    if type(body) is not dict:
        raise UnsupportedMediaType(FORM, expected=KINDS)
    return await _produce_json(request, topic, context, body, new_partitions)


async def _produce_json(
    request: Request, topic: str, context: Context, body: Any, new_partitions: int
) -> Response:
    encoding = _encoding(request)
    broker = context.broker
    delayed = broker.subscriptions.delay_headers
    if type(body) is dict and "messages" not in body:
        record = new_record(body, delayed=delayed, encoding=encoding)
        count = 1 if "value" not in body and record.partition is None else new_partitions
        return stored_answer(await broker.sender.send(topic, record, new_partitions=count))
    shapes = body
    if type(body) is dict:
        shapes = body["messages"]
        if len(body) > 1:
            raise InvalidRequest("beside messages there is nothing else: put it into each of them")
    if type(shapes) is not list:
        raise InvalidRequest("expected a message, an array of them, or {'messages': [...]}")
    if len(shapes) > _MOST_IN_JSON:
        raise InvalidRequest(
            f"{len(shapes)} messages at once: send {_MOST_IN_JSON} at most, or lines as {LINES[0]}"
        )
    records: list[NewRecord] = []
    for at in range(0, len(shapes), _ONE_BATCH):
        some = shapes[at : at + _ONE_BATCH]
        records += new_records(some, delayed=delayed, encoding=encoding, first=at)
        if len(some) == _ONE_BATCH:
            # Others have their turn in between.
            await asyncio.sleep(0)
    if not records:
        return _answer_many([])
    if "value" not in shapes[0] and not any(each.partition for each in records):
        new_partitions = 1
    return _answer_many(
        await broker.sender.send_many(topic, records, new_partitions=new_partitions)
    )


def stored_answer(sent: Sent) -> Response:
    return Response(orjson.dumps(sent_shape(sent)), media_type=JSON)


def _answer_many(results: Sequence[Sent | MillstreamError]) -> Response:
    failures = [each for each in results if isinstance(each, MillstreamError)]
    if failures and len(failures) == len(results):
        return answer_of(failures[0])
    shapes = [
        sent_shape(each) if isinstance(each, Sent) else {"error": problem_of(each)}
        for each in results
    ]
    answer = {"count": len(results) - len(failures), "messages": shapes}
    status = HTTPStatus.MULTI_STATUS if failures else HTTPStatus.OK
    return Response(orjson.dumps(answer), status, media_type=JSON)


async def _produce_bytes(
    request: Request, topic: str, context: Context, new_partitions: int
) -> Response:
    """The body is the value; what else there is to say stands in the query and the headers."""
    if request.scope["query_string"]:
        check_parameters(request, _OF_BYTES)
    value = await whole_body(request, context.settings.request_max_bytes)
    delayed = context.broker.subscriptions.delay_headers
    given = _numbers(request)
    key = _key(request)
    headers = tuple(
        (name.removeprefix(HEADER_PREFIX), text.encode("latin-1"))
        for name, text in request.headers.items()
        if name.startswith(HEADER_PREFIX)
    )
    headers += tuple(_query_header(text) for text in request.query_params.getlist("header"))
    delay_ms, at_ms = whole(given, "deliver_after"), whole(given, "deliver_at")
    record = NewRecord(
        value=value,
        key=key,
        headers=with_delivery(headers, delay_ms=delay_ms, at_ms=at_ms, delayed=delayed),
        timestamp_ms=whole(given, "timestamp"),
        partition=whole(given, "partition", maximum=MAX_PARTITIONS),
    )
    sender = context.broker.sender
    return stored_answer(await sender.send(topic, record, new_partitions=new_partitions))


def _key(request: Request) -> bytes | None:
    text = request.query_params.get("key")
    if text is not None:
        return text.encode()
    # As the bytes came: whoever reads headers takes each for a character.
    text = request.headers.get(KEY_HEADER)
    return None if text is None else text.encode("latin-1")


def _query_header(text: str) -> tuple[str, bytes]:
    name, colon, value = text.partition(":")
    if not (name and colon):
        raise InvalidRequest(f"header is {excerpt(text)}: expected NAME:VALUE")
    return name, value.encode()


def _numbers(request: Request) -> dict[str, Any]:
    """Numbers of the query; text that is none stays as it is, to be refused."""
    return {
        name: int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
        for name, text in request.query_params.items()
        if name in _WHOLE_NUMBERS
    }


class _Stream:
    """What became of a stream of messages so far. Its size does not grow with the stream.

    Invariant: all of it goes to one topic; if that is deleted, nothing goes to a new one of its
    name.
    """

    def __init__(self, context: Context, name: str, new_partitions: int) -> None:
        self.count = 0
        self._context = context
        self._name = name
        self.new_partitions = new_partitions
        self._topic: Topic | None = None
        self._ranges: dict[int, list[int]] = {}
        self._told: list[Sent] | None = []

    async def send(self, records: Sequence[NewRecord]) -> None:
        """Raises the first failure, if there is one; the others are stored."""
        if not records:
            return
        topics, sender = self._context.broker.topics, self._context.broker.sender
        if self._topic is None:
            # If it is not there, it is created now.
            with suppress(UnknownTopic):
                self._topic = topics.get(self._name)
        else:
            # No await from here until the sender has found the topic.
            self._context.check_there(self._topic)
        failure = self._add(
            await sender.send_many(self._name, records, new_partitions=self.new_partitions)
        )
        if self._topic is None and self.count:
            self._topic = topics.get(self._name)
        if failure is not None:
            raise failure

    async def send_or_fail(self, records: Sequence[NewRecord]) -> MillstreamError | None:
        """The same; the failure is returned."""
        try:
            await self.send(records)
        except MillstreamError as error:
            return error
        return None

    def _add(self, results: Sequence[Sent | MillstreamError]) -> MillstreamError | None:
        """The first failure, if there is one."""
        failure = None
        for sent in results:
            if isinstance(sent, MillstreamError):
                failure = failure or sent
                continue
            self.count += 1
            found = self._ranges.get(sent.partition)
            if found is None:
                self._ranges[sent.partition] = [1, sent.offset, sent.offset]
            else:
                found[0] += 1
                found[2] = sent.offset
        if self._told is not None:
            self._told += [each for each in results if isinstance(each, Sent)]
            if len(self._told) > _MOST_TOLD:
                self._told = None
        return failure

    def shape(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "count": self.count,
            "partitions": [
                {"partition": number, "count": count, "first_offset": first, "last_offset": last}
                for number, (count, first, last) in sorted(self._ranges.items())
            ],
        }
        if self._told is not None:
            shape["messages"] = [sent_shape(each) for each in self._told]
        return shape


async def _produce_lines(
    request: Request, topic: str, context: Context, new_partitions: int
) -> Response:
    """A message a line. The first that is wrong ends it; those before it are stored, and told."""
    stream = _Stream(context, topic, new_partitions)
    encoding = _encoding(request)
    line_number = waiting_bytes = 0
    waiting: list[NewRecord] = []
    try:
        context.broker.sender.check(topic)
        async for lines in lines_of(request, context.settings.request_max_bytes):
            delayed = context.broker.subscriptions.delay_headers
            for line in lines:
                line_number += 1
                waiting_bytes += len(line)
                if len(line) > json_text.SMALL_BYTES:
                    shape = await json_text.parse(line, what="line")
                else:
                    shape = json_text.parse_small(line, what="line")
                waiting.append(new_record(shape, delayed=delayed, encoding=encoding))
                if line_number == 1 and "value" not in shape:
                    stream.new_partitions = 1
            # Also when nothing more comes for now.
            if len(waiting) >= _ONE_BATCH or waiting_bytes >= _ONE_BATCH_BYTES or not lines:
                sending, waiting = waiting, []
                waiting_bytes = 0
                await stream.send(sending)
        sending, waiting = waiting, []
        await stream.send(sending)
    except MillstreamError as error:
        # Whatever was wrong with a line, those before it are fine.
        failure = await stream.send_or_fail(waiting)
        return answer_of(failure or error, line=line_number, stored=stream.shape())
    return Response(orjson.dumps(stream.shape()), media_type=JSON)


def _encoding(request: Request) -> str:
    """What the query asks for, which has nothing else to say of JSON. Raises InvalidRequest."""
    if not request.scope["query_string"]:
        return TEXT
    check_parameters(request, PARAMETERS)
    for name in request.query_params:
        if name not in _OF_JSON:
            raise InvalidRequest(f"{name} is a parameter of a raw body: put it into each message")
    return check_encoding(request.query_params.get("encoding", TEXT))
