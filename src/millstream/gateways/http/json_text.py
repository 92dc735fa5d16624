"""JSON that clients send: parsed at once, so what would take long is refused before.

While JSON is parsed nothing else happens in the broker, and a few bytes of it can be a lot of
work: `[[],[],...`. So arrays, objects and values are counted first, where there is much of it.

Invariant: a number of a message's `value` is kept as it was sent, digit by digit where a double
would not do.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
from typing import Any, Final, NoReturn

import orjson

from millstream.errors import InvalidRequest, MalformedMessage

MOST_CONTAINERS: Final = 60_000
MOST_VALUES: Final = 300_000

SMALL_BYTES: Final = 64 << 10
"""This takes no time, whatever it is."""
_PIECE_BYTES = 64 << 10
_TURN_BYTES = 256 << 10
_TURN_STRINGS = 2000
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_INEXACT = {dict, list, float}
_MORE_THAN_A_DOUBLE = re.compile(r"[0-9][0-9.]{16}|[0-9][eE][-+]?[0-9]{3}")
_MORE_THAN_A_DOUBLE_BYTES = re.compile(_MORE_THAN_A_DOUBLE.pattern.encode())
_QUOTE = ord('"')


async def parse(text: bytes | str, *, what: str = "body") -> Any:
    """What JSON says. Raises MalformedMessage; InvalidRequest for more than is parsed at once."""
    if len(text) <= SMALL_BYTES:
        return parse_small(text, what=what)
    await check(text.encode() if isinstance(text, str) else text)
    # What is made here are no cycles: to look for them over and over takes most of the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return parse_small(text, what=what)
    finally:
        if was_enabled:
            gc.enable()


def parse_small(text: bytes | str, *, what: str = "body") -> Any:
    """The same, for what is known to be little. Hot: benchmarks/http.py."""
    try:
        shape = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedMessage(f"the {what} is not JSON: {error}") from None
    if type(shape) is dict:
        if type(shape.get("value")) in _INEXACT or "messages" in shape:
            _keep_numbers(shape, text)
    elif type(shape) is list:
        _keep_numbers(shape, text)
    return shape


async def check(data: bytes, *, most_values: int = MOST_VALUES) -> None:
    """Raises InvalidRequest for more than is parsed at once."""
    if await _is_surely_fine(data, most_values) or not await _is_too_much(data, most_values):
        return
    raise InvalidRequest(
        f"the JSON has more than {MOST_CONTAINERS} arrays and objects, or {most_values} values: "
        "send less at once, or each message as a line of application/x-ndjson"
    )


async def _is_surely_fine(data: bytes, most_values: int) -> bool:
    """Whether there is little even if what stands in strings is counted with the rest."""
    containers = values = 0
    for at in range(0, len(data), _TURN_BYTES):
        end = at + _TURN_BYTES
        containers += data.count(b"[", at, end) + data.count(b"{", at, end)
        values += data.count(b",", at, end)
        if containers > MOST_CONTAINERS or values > most_values:
            return False
        await asyncio.sleep(0)
    return True


async def _is_too_much(data: bytes, most_values: int) -> bool:
    """The same without what stands in strings. What is no JSON is found to be so later."""
    at = turn_at = containers = values = strings = 0
    while at < len(data):
        quote = data.find(b'"', at, at + _PIECE_BYTES)
        end = quote if quote >= 0 else min(at + _PIECE_BYTES, len(data))
        containers += data.count(b"[", at, end) + data.count(b"{", at, end)
        values += data.count(b",", at, end)
        if containers > MOST_CONTAINERS or max(values, strings // 2) > most_values:
            return True
        at = end
        if quote >= 0:
            at = await _end_of_string(data, quote + 1)
            strings += 1
        if at - turn_at > _TURN_BYTES or strings % _TURN_STRINGS == 0:
            turn_at = at
            await asyncio.sleep(0)
    return False


async def _end_of_string(data: bytes, at: int) -> int:
    turn_at = at
    while at < len(data):
        found = _REST_OF_STRING.match(data, at, at + _PIECE_BYTES)
        assert found is not None, "it matches nothing, too"
        if found.end() < len(data) and data[found.end()] == _QUOTE:
            return found.end() + 1
        if found.end() == at:
            # A backslash, and nothing behind it.
            break
        at = found.end()
        if at - turn_at > _TURN_BYTES:
            turn_at = at
            await asyncio.sleep(0)
    return len(data)


def _keep_numbers(shape: Any, text: bytes | str) -> None:
    """Put numbers that a double cannot hold into messages as they were sent."""
    messages = _messages(shape)
    if not any(type(each.get("value")) in _INEXACT for each in messages if type(each) is dict):
        return
    found = (
        _MORE_THAN_A_DOUBLE.search(text)
        if isinstance(text, str)
        else _MORE_THAN_A_DOUBLE_BYTES.search(text)
    )
    if found is None:
        return
    try:
        exact = json.loads(
            text, parse_int=_as_sent, parse_float=_as_sent, parse_constant=_no_number
        )
    except RecursionError:
        raise InvalidRequest(TOO_DEEP) from None
    for each, same in zip(messages, _messages(exact), strict=True):
        if type(each) is dict and type(each.get("value")) in _INEXACT:
            each["value"] = same["value"]


TOO_DEEP: Final = "value is nested too deeply: expected at most 250 levels, or text"


def _messages(shape: Any) -> list[Any]:
    if type(shape) is dict:
        many = shape.get("messages")
        return [shape, *many] if type(many) is list else [shape]
    return list(shape)


def _as_sent(number: str) -> Any:
    return orjson.Fragment(number)


def _no_number(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON, and was refused before")
