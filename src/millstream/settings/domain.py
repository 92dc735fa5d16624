"""The values a setting can take.

A domain turns what a person wrote (a TOML value, or the text of a flag) into a value of the
setting's type, says whether a value is allowed, and describes what is allowed in a few words.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Domain(Protocol):
    """A set of values with a description."""

    @property
    def expected(self) -> str:
        """What is allowed, to follow the word "expected"."""

    def convert(self, raw: object) -> object:
        """The value that `raw` stands for; `raw` itself when it stands for none."""

    def contains(self, value: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range, both ends included."""

    minimum: int
    maximum: int
    note: str = ""

    @property
    def expected(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"a whole number from {self.minimum} to {self.maximum}{note}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            with suppress(ValueError):
                return int(raw)
        return raw

    def contains(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number in a range, both ends included."""

    minimum: float
    maximum: float

    @property
    def expected(self) -> str:
        return f"a number from {self.minimum:g} to {self.maximum:g}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, int | str) and not isinstance(raw, bool):
            with suppress(ValueError, OverflowError):
                return float(raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, float) and self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    expected: str = "true or false"

    def convert(self, raw: object) -> object:
        return {"true": True, "false": False}.get(raw, raw) if isinstance(raw, str) else raw

    def contains(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One word of a list."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.words)}"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and value in self.words


@dataclass(frozen=True, slots=True)
class Only:
    """The one value that a setting can take here, where other brokers know more of them."""

    value: bool | int | str

    @property
    def expected(self) -> str:
        return f"{self._text}, which is all there is"

    def convert(self, raw: object) -> object:
        return self.value if raw == self._text else raw

    def contains(self, value: object) -> bool:
        return type(value) is type(self.value) and value == self.value

    @property
    def _text(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """One or more words of a list, written with commas between them."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one or more of {', '.join(self.words)}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            raw = raw.split(",")
        if isinstance(raw, list) and all(isinstance(word, str) for word in raw):
            return frozenset(word.strip() for word in raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, frozenset) and bool(value) and value <= set(self.words)


@dataclass(frozen=True, slots=True)
class Names:
    """Any number of names, none too, written with commas between them."""

    expected: str

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            raw = raw.split(",") if raw.strip() else []
        if isinstance(raw, list) and all(isinstance(name, str) for name in raw):
            return frozenset(name.strip() for name in raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, frozenset) and all(
            isinstance(name, str) and name != "" for name in value
        )


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one, without NUL, which no path can have."""

    expected: str

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and value != "" and "\0" not in value


@dataclass(frozen=True, slots=True)
class Reachable:
    """HOST:PORT that others can connect to, or nothing."""

    expected: str = "HOST:PORT that clients can connect to, or nothing"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        if not isinstance(value, str) or value == "":
            return value == ""
        host, port = split_address(value) or ("", 0)
        return port > 0 and host not in {"0.0.0.0", "::"}  # noqa: S104 - it is refused


@dataclass(frozen=True, slots=True)
class Address:
    """HOST:PORT, [IPV6]:PORT or `off`."""

    @property
    def expected(self) -> str:
        return "HOST:PORT or [IPV6]:PORT, with a port from 0 to 65535, or off"

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and (value == "off" or split_address(value) is not None)


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port; None when the text is no address. Kafka writes PLAINTEXT:// before it."""
    host, colon, port = text.removeprefix("PLAINTEXT://").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not (host and colon and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        return None
    return host, int(port)


MAX_PORT = 65535
