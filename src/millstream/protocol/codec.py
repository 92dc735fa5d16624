"""Messages from bytes and to bytes, by code that is compiled at first use.

`decode` takes what comes from outside: whatever is wrong with it is a MalformedMessage, and the
memory that it costs is bounded by the size of the buffer, and by the number of elements that the
caller admits. `encode` takes our own values; one
that does not fit its declaration is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from millstream.errors import MalformedMessage
from millstream.protocol.compiler import (
    Reader,
    SliceWriter,
    Writer,
    compile_reader,
    compile_slice_writer,
    compile_writer,
)
from millstream.protocol.notation import Struct
from millstream.protocol.primitives import UNREADABLE, Buffer

Message = TypeVar("Message", bound=Struct)

_readers: dict[tuple[type[Struct], int], Reader] = {}
_writers: dict[tuple[type[Struct], int], Writer] = {}
_slice_writers: dict[tuple[type[Struct], int], SliceWriter] = {}

_ANY_NUMBER = 1 << 62


def decode(cls: type[Message], version: int, buffer: Buffer, position: int = 0) -> Message:
    """The message that fills the buffer from `position` to its end."""
    value, stop = decode_prefix(cls, version, buffer, position)
    if stop != len(buffer):
        raise MalformedMessage(f"{len(buffer) - stop} bytes after the end of {cls.__name__}")
    return value


def decode_prefix(
    cls: type[Message],
    version: int,
    buffer: Buffer,
    position: int = 0,
    *,
    max_elements: int = _ANY_NUMBER,
) -> tuple[Message, int]:
    """The message at `position`, and the position after it.

    Raises TooManyElements before it has built more than `max_elements`, counted over all arrays
    and tagged fields: an element takes one byte on the wire, and some hundred in memory.
    """
    read = _readers.get((cls, version))
    if read is None:
        read = _readers[cls, version] = compile_reader(cls, version)
    try:
        value, stop, _ = read(buffer, position, len(buffer), max_elements)
    except UNREADABLE as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error
    return value, stop


def encode(value: Struct, version: int) -> bytes:
    """The bytes of a message."""
    return b"".join(encode_parts(value, version))


def encode_parts(value: Struct, version: int) -> list[bytes | memoryview]:
    """The bytes of a message as parts to be sent one after the other; views are not copied."""
    cls = type(value)
    write = _writers.get((cls, version))
    if write is None:
        write = _writers[cls, version] = compile_writer(cls, version)
    return write(value)


def encode_slices(value: Struct, version: int) -> Iterator[bytes]:
    """The bytes of a message in slices, each of which is made when it is asked for.

    Between two of them other work can have its turn; the message must not change meanwhile.
    """
    cls = type(value)
    write = _slice_writers.get((cls, version))
    if write is None:
        write = _slice_writers[cls, version] = compile_slice_writer(cls, version)
    return write(value)
