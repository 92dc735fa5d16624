"""Messages as they are printed: as text, JSON, hexadecimal digits, or in a form of one's own.

A form of one's own is text with `%` and a letter where something of the message goes:
%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T milliseconds since 1970,
%I the same as a time, %% a percent sign; \\n, \\t, \\0 and \\xHH as in C.

Invariant: `text` and `hex` have a line for each message, as long as no value holds an end of line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.escapes import unescaped
from millstream.cli.message_content import content
from millstream.cli.printout import time_text

if TYPE_CHECKING:
    from millstream.client.kafka import Place
    from millstream.records import Record

Format = Callable[["Place", Sequence["Record"]], bytes]
"""Makes the bytes of some messages of one partition."""

NAMED = ("text", "json", "hex")
_PART = re.compile(r"%(.?)|([^%]+)", re.DOTALL)


def format_of(form: str, *, key_separator: bytes | None) -> Format:
    """By name, or as a person wrote it. A usage error for what is neither."""
    if form == "text":
        return text if key_separator is None else _keyed_text(key_separator)
    if form == "hex":
        return _hexadecimal(key_separator)
    if form == "json":
        return _json
    if "%" not in form:
        raise typer.BadParameter(
            f"{form!r} for --format: give one of {', '.join(NAMED)}, or a form like '%o %k %v\\n'"
        )
    return _own(form)


def json_shape(place: Place, record: Record) -> dict[str, Any]:
    """A message as `produce --format json` takes it, and where it is."""
    topic, partition = place
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **content(record.key, record.value, record.headers),
    }


def text(place: Place, records: Sequence[Record]) -> bytes:
    """A line for each value."""
    del place
    return text_lines([record.value for record in records])


def text_lines(values: Sequence[bytes | None]) -> bytes:
    """Hot."""
    return b"\n".join([*(value or b"" for value in values), b""])


def _keyed_text(separator: bytes) -> Format:
    def keyed(place: Place, records: Sequence[Record]) -> bytes:
        del place
        return b"".join(
            b"%b%b%b\n" % (record.key or b"", separator, record.value or b"") for record in records
        )

    return keyed


def _hexadecimal(separator: bytes | None) -> Format:
    def digits(place: Place, records: Sequence[Record]) -> bytes:
        del place
        lines = []
        for record in records:
            value = (record.value or b"").hex().encode()
            if separator is not None:
                value = (record.key or b"").hex().encode() + separator + value
            lines.append(value + b"\n")
        return b"".join(lines)

    return digits


def _json(place: Place, records: Sequence[Record]) -> bytes:
    import orjson

    option = orjson.OPT_APPEND_NEWLINE
    return b"".join(orjson.dumps(json_shape(place, record), option=option) for record in records)


def _own(form: str) -> Format:
    parts = _parsed(form)

    def own(place: Place, records: Sequence[Record]) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(place, record)
            for record in records
            for part in parts
        )

    return own


def _parsed(form: str) -> list[bytes | Callable[[Place, Record], bytes]]:
    parts: list[bytes | Callable[[Place, Record], bytes]] = []
    for found in _PART.finditer(form):
        letter, literal = found[1], found[2]
        if literal is not None:
            parts.append(unescaped(literal, "--format"))
        elif letter == "%":
            parts.append(b"%")
        elif letter in _WRITERS:
            parts.append(_WRITERS[letter])
        else:
            raise typer.BadParameter(
                f"%{letter} in --format {form!r}: give % and one of {' '.join(_WRITERS)} %"
            )
    return parts


def _headers(record: Record) -> bytes:
    return b",".join(
        b"%b=%b" % (name.encode(errors="surrogateescape"), value or b"")
        for name, value in record.headers
    )


_WRITERS: dict[str, Callable[[Any, Any], bytes]] = {
    "t": lambda place, _: place[0].encode(),
    "p": lambda place, _: b"%d" % place[1],
    "o": lambda _, record: b"%d" % record.offset,
    "k": lambda _, record: record.key or b"",
    "v": lambda _, record: record.value or b"",
    "h": lambda _, record: _headers(record),
    "T": lambda _, record: b"%d" % record.timestamp_ms,
    "I": lambda _, record: time_text(record.timestamp_ms).encode(),
}
