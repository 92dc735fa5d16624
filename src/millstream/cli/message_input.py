"""Messages as a person or a program writes them: lines of text, JSON or hexadecimal digits, files.

Input is taken as it comes, so that `tail -f | millstream produce` sends each line at once; from a
file it comes in large pieces, and what is a message is decided for a whole piece at a time.
Every problem is told with the name of the file and the line.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from millstream.cli.moments import time_ms_of
from millstream.errors import InvalidRequest
from millstream.settings.domain import LONG_MAX

PIECE_BYTES = 256 << 10

Headers = tuple[tuple[str, bytes | None], ...]

_FIELDS = frozenset(
    {"key", "value", "headers", "partition", "timestamp", "key_encoding", "encoding"}
)
_IGNORED = frozenset({"topic", "offset"})
"""`consume --json` writes them; where a message goes is for the command to say."""


class Outgoing(NamedTuple):
    """A message that says more than its value."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Piece(NamedTuple):
    """Some messages, and how many bytes of input they are."""

    size: int
    values: list[bytes | None]
    """The messages, where they are only values."""
    messages: list[Outgoing]
    """The messages, where they are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How input becomes messages."""

    form: str
    """`text`, `json`, `hex` or `file`."""
    key_separator: bytes = b""


def pieces(paths: Sequence[Path], reading: Reading) -> Iterator[Piece]:
    """All input, of files or else of stdin. Raises InvalidRequest, OSError."""
    if reading.form == "file":
        yield from _whole_files(paths)
        return
    parse = _PARSERS[reading.form]
    for name, lines, first, size in _all_lines(paths):
        if reading.form == "text" and not reading.key_separator:
            yield Piece(size, [*lines], [])
        else:
            yield Piece(size, [], parse(name, lines, first, reading))


def _whole_files(paths: Sequence[Path]) -> Iterator[Piece]:
    if not paths:
        content = b"".join(iter(lambda: os.read(sys.stdin.fileno(), PIECE_BYTES), b""))
        yield Piece(len(content), [content], [])
    for path in paths:
        content = path.read_bytes()
        yield Piece(len(content), [content], [])


def _all_lines(paths: Sequence[Path]) -> Iterator[tuple[str, list[bytes], int, int]]:
    if not paths:
        yield from _lines("stdin", sys.stdin.fileno())
    for path in paths:
        with path.open("rb", buffering=0) as file:
            yield from _lines(str(path), file.fileno())


def _lines(name: str, descriptor: int) -> Iterator[tuple[str, list[bytes], int, int]]:
    """Whole lines, as many as there are: where they are from, the first one's number, and bytes."""
    parts: list[bytes] = []
    number, size = 1, 0
    while piece := os.read(descriptor, PIECE_BYTES):
        size += len(piece)
        parts.append(piece)
        if b"\n" not in piece:
            # A long line: put together in the end, not copied with every piece.
            continue
        lines = b"".join(parts).split(b"\n")
        parts = [lines.pop()]
        yield name, lines, number, size
        number, size = number + len(lines), 0
    if rest := b"".join(parts):
        yield name, [rest], number, size


def _keyed(name: str, lines: list[bytes], first: int, reading: Reading) -> list[Outgoing]:
    separator = reading.key_separator
    found = []
    for number, line in enumerate(lines, start=first):
        key, between, value = line.partition(separator)
        if not between:
            raise InvalidRequest(
                f"{name}:{number}: no {separator.decode(errors='backslashreplace')!r} between key "
                "and value: put one there, or give another --key-separator"
            )
        found.append(Outgoing(value, key))
    return found


def _hexadecimal(name: str, lines: list[bytes], first: int, reading: Reading) -> list[Outgoing]:
    found = []
    for number, line in enumerate(lines, start=first):
        key, between, value = (
            line.partition(reading.key_separator) if reading.key_separator else (b"", b"", line)
        )
        try:
            outgoing = Outgoing(
                bytes.fromhex(value.decode()), bytes.fromhex(key.decode()) if between else None
            )
        except ValueError as error:
            raise InvalidRequest(f"{name}:{number}: no hexadecimal digits: {error}") from None
        found.append(outgoing)
    return found


def _json(name: str, lines: list[bytes], first: int, reading: Reading) -> list[Outgoing]:
    import orjson

    del reading
    found = []
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        try:
            found.append(_outgoing(orjson.loads(line)))
        except orjson.JSONDecodeError as error:
            at = f"{name}:{number}:{error.colno}"
            raise InvalidRequest(f"{at}: no JSON: {error.msg}") from None
        except ValueError as error:
            raise InvalidRequest(f"{name}:{number}: {error}") from None
    return found


def _outgoing(shape: Any) -> Outgoing:
    if not isinstance(shape, dict):
        raise ValueError('a message is an object, as {"key": "k", "value": "v"}')
    if strange := shape.keys() - _FIELDS - _IGNORED:
        raise ValueError(f"no field {min(strange)!r} is known: give {', '.join(sorted(_FIELDS))}")
    partition = shape.get("partition")
    if partition is not None and (type(partition) is not int or partition < 0):
        raise ValueError(f"partition {partition!r}: give a number, 0 or more")
    return Outgoing(
        _bytes(shape.get("value"), shape.get("encoding")),
        _bytes(shape.get("key"), shape.get("key_encoding")),
        tuple(_headers(shape.get("headers") or {})),
        partition,
        _timestamp_ms(shape.get("timestamp")),
    )


def _bytes(content: Any, encoding: object = None) -> bytes | None:
    if content is None:
        return None
    if encoding not in (None, "base64"):  # any JSON can stand there
        raise ValueError(f"encoding {encoding!r}: give base64, or none for text")
    if isinstance(content, str):
        if encoding is None:
            return content.encode()
        try:
            return b64decode(content, validate=True)
        except NoBase64 as error:
            raise ValueError(f"{content[:40]!r} is no base64: {error}") from None
    import orjson

    return orjson.dumps(content)


def _headers(shape: Any) -> Iterator[tuple[str, bytes | None]]:
    if not isinstance(shape, dict):
        raise ValueError('headers are an object, as {"name": "value"}')
    for name, content in shape.items():
        for each in content if isinstance(content, list) else [content]:
            if isinstance(each, dict) and each.keys() == {"base64"}:
                yield name, _bytes(each["base64"], "base64")
            elif each is None or isinstance(each, str):
                yield name, _bytes(each)
            else:
                raise ValueError(f'header {name!r}: give text, null or {{"base64": "..."}}')


def _timestamp_ms(content: Any) -> int | None:
    if content is None:
        return None
    found = time_ms_of(content) if isinstance(content, str) else content
    if type(found) is not int or abs(found) > LONG_MAX:
        raise ValueError(f"timestamp {content!r}: give milliseconds since 1970, or an ISO time")
    return found


_PARSERS: dict[str, Callable[[str, list[bytes], int, Reading], list[Outgoing]]] = {
    "text": _keyed,
    "json": _json,
    "hex": _hexadecimal,
}
FORMS = (*_PARSERS, "file")
