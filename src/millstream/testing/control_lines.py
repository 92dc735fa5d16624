"""The language that a test and the process of its broker speak: one JSON value a line.

The test asks `{"id": 1, "do": "produce", "values": {...}}`. The answer is
`{"id": 1, "result": ...}`, or `{"id": 1, "error": "UnknownTopic", "fields": {...}, ...}`.
Bytes are `{"bytes": base64}`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import fields, is_dataclass
from typing import Any

from millstream import errors
from millstream.errors import BrokerProcessFailed, MillstreamError

_BYTES = "bytes"


def line_of(value: dict[str, Any]) -> bytes:
    return json.dumps(value, default=_as_json).encode() + b"\n"


def value_of(line: bytes) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(line, object_hook=_from_json)
    return value


def told(error: Any) -> dict[str, Any]:
    """An error, for an answer."""
    known: dict[str, Any] = {}
    if is_dataclass(error):
        known = {each.name: getattr(error, each.name) for each in fields(error)}
    return {
        "error": type(error).__name__,
        "arguments": error.args,
        # Either is what it was made of.
        "fields": {} if error.args else known,
        "said": str(error) or repr(error),
    }


def raised(answer: dict[str, Any]) -> MillstreamError:
    """The error that an answer tells of: the same, where it can be made again."""
    kind = getattr(errors, answer["error"], None)
    if isinstance(kind, type) and issubclass(kind, MillstreamError):
        try:
            error = kind(*answer["arguments"], **answer["fields"])
        except TypeError:
            pass
        else:
            return error
    return BrokerProcessFailed(reason=f"{answer['error']}: {answer['said']}")


def _as_json(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: b64encode(value).decode()}
    return repr(value)


def _from_json(value: dict[str, Any]) -> Any:
    return b64decode(value[_BYTES]) if value.keys() == {_BYTES} else value
