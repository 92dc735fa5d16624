"""Where a broker listens."""

from __future__ import annotations

from typing import NamedTuple

from millstream.errors import InvalidSetting

_EXPECTED = "addresses like 127.0.0.1:9092 with commas between them"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """The addresses in a list like that of `bootstrap.servers`. Raises InvalidSetting."""
    found = [_parse(word.strip(), text) for word in text.split(",") if word.strip()]
    if not found:
        raise InvalidSetting(name="bootstrap.servers", value=text, expected=_EXPECTED)
    return found


def _parse(word: str, text: str) -> Address:
    # Java's clients take a protocol before the address.
    host, colon, port = word.rpartition("://")[2].rpartition(":")
    is_number = port.isascii() and port.isdigit()
    if not colon or not is_number or not 0 < int(port) <= 65535:
        raise InvalidSetting(name="bootstrap.servers", value=text, expected=_EXPECTED)
    return Address(host.strip("[]"), int(port))
