"""The fields of a request that came in a WebSocket frame, read with their types checked."""

from __future__ import annotations

from typing import Any

from millstream.errors import InvalidRequest
from millstream.gateways.http.excerpt import excerpt
from millstream.records.record import MAX_INT64

_MISSING = object()
_MANY = 10_000


class Fields:
    """A JSON object that a client sent. Everything raises InvalidRequest."""

    __slots__ = ("_shape",)

    def __init__(self, shape: dict[str, Any]) -> None:
        self._shape = shape

    def __contains__(self, name: str) -> bool:
        return self._shape.get(name) is not None

    def any(self, name: str, default: Any = None) -> Any:
        value = self._shape.get(name)
        return default if value is None else value

    def without(self, *names: str) -> dict[str, Any]:
        return {name: value for name, value in self._shape.items() if name not in names}

    def text(self, name: str) -> str:
        value = self._shape.get(name, _MISSING)
        if type(value) is not str:
            raise _wrong(name, value, "text")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def whole(self, name: str, *, minimum: int = 0, maximum: int = MAX_INT64) -> int:
        value = self._shape.get(name, _MISSING)
        if type(value) is not int or not minimum <= value <= maximum:
            raise _wrong(name, value, f"a whole number from {minimum} to {maximum}")
        return value

    def optional_whole(self, name: str, *, minimum: int = 0) -> int | None:
        return self.whole(name, minimum=minimum) if name in self else None

    def flag(self, name: str) -> bool:
        value = self.any(name, default=False)
        if type(value) is not bool:
            raise _wrong(name, value, "true or false")
        return value

    def many(self, name: str) -> list[Any]:
        """A list of bounded length, with something in it."""
        value = self._shape.get(name, _MISSING)
        if type(value) is not list or not 0 < len(value) <= _MANY:
            raise _wrong(name, value, f"a list of 1 to {_MANY}")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.many(name)
        for value in values:
            if type(value) is not str:
                raise _wrong(name, value, "a list of texts")
        return values

    def settings(self, name: str) -> dict[str, str]:
        """An object of names and values; numbers and flags are as good as text."""
        value = self.any(name, default={})
        if type(value) is not dict:
            raise _wrong(name, value, "an object of names and values")
        return {key: _setting(key, each) for key, each in value.items()}


def _setting(name: str, value: Any) -> str:
    if type(value) is bool:
        return str(value).lower()
    if type(value) in {str, int, float}:
        return str(value)
    raise _wrong(name, value, "text or a number")


def _wrong(name: str, value: Any, expected: str) -> InvalidRequest:
    if value is _MISSING:
        return InvalidRequest(f"{name} is missing: expected {expected}")
    return InvalidRequest(f"{name} is {excerpt(value)}: expected {expected}")
