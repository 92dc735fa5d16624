"""The simple types on the wire: each knows how to emit the code that reads and writes it.

Fixed-width values are big-endian. Text and bytes have a size before them: in flexible versions
a varint of the size plus one, with 0 for null; in older ones an int16 for text, an int32 for
bytes, with -1 for null.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod

from millstream.protocol.emitter import ReadEmitter, WriteEmitter


class WireType(ABC):
    """One type of the protocol."""

    # What is written for null in versions that know no null, as source.
    empty = "None"

    @abstractmethod
    def minimum_bytes(self, version: int, *, is_flexible: bool) -> int:
        """The fewest bytes that a value can take."""

    @abstractmethod
    def emit_read(self, code: ReadEmitter, target: str, label: str, *, is_nullable: bool) -> None:
        """Read one value into `target`; `label` is what a complaint calls it."""

    @abstractmethod
    def emit_write(self, code: WriteEmitter, source: str, *, is_nullable: bool) -> None:
        """Write the value of the expression `source`."""


class FixedWidth(WireType):
    """A value that always takes the same room."""

    def __init__(self, code: str) -> None:
        self.code = code

    @property
    def size_bytes(self) -> int:
        return struct.calcsize(">" + self.code)

    def minimum_bytes(self, version: int, *, is_flexible: bool) -> int:  # noqa: ARG002
        return self.size_bytes

    def emit_read(self, code: ReadEmitter, target: str, label: str, *, is_nullable: bool) -> None:
        assert not is_nullable, f"{label} has no null on the wire"
        code.fixed(self.code, target)

    def emit_write(self, code: WriteEmitter, source: str, *, is_nullable: bool) -> None:
        assert not is_nullable, f"{source} has no null on the wire"
        code.fixed(self.code, source)


class Sized(WireType):
    """A value with its size before it."""

    legacy_code = "i"

    def minimum_bytes(self, version: int, *, is_flexible: bool) -> int:  # noqa: ARG002
        return 1 if is_flexible else struct.calcsize(">" + self.legacy_code)

    def emit_read(self, code: ReadEmitter, target: str, label: str, *, is_nullable: bool) -> None:
        size = code.size(self.legacy_code)
        if not is_nullable:
            self.emit_read_content(code, target, label, size)
            return
        with code.block(f"if {size} == -1:"):
            code.line(f"{target} = None")
        with code.block("else:"):
            self.emit_read_content(code, target, label, size)

    def emit_write(self, code: WriteEmitter, source: str, *, is_nullable: bool) -> None:
        if not is_nullable:
            self.emit_write_content(code, source)
            return
        with code.block(f"if {source} is None:"):
            code.null_size(self.legacy_code)
        with code.block("else:"):
            self.emit_write_content(code, source)

    @abstractmethod
    def emit_read_content(self, code: ReadEmitter, target: str, label: str, size: str) -> None:
        """Read what follows a size that is not yet known to be good."""

    @abstractmethod
    def emit_write_content(self, code: WriteEmitter, source: str) -> None:
        """Write the size and what follows it."""


class SizedView(Sized):
    """Bytes that stay where they are: reading makes a view of the buffer."""

    empty = "b''"
    _taken = "memoryview(buffer)[position:stop]"
    _sent = "{}"

    def emit_read_content(self, code: ReadEmitter, target: str, label: str, size: str) -> None:
        code.check_size(size, unit_bytes=1, label=label)
        code.line(f"stop = position + {size}")
        code.line(f"{target} = {self._taken}")
        code.line("position = stop")

    def emit_write_content(self, code: WriteEmitter, source: str) -> None:
        raw = code.unit.name("raw")
        code.declare(f"{raw} = {self._sent.format(source)}")
        code.size(f"len({raw})", self.legacy_code)
        code.part(raw)


class SizedBytes(SizedView):
    """Bytes that are copied out of the buffer."""

    _taken = "bytes(buffer[position:stop])"


class SizedText(SizedView):
    """Text in UTF-8."""

    legacy_code = "h"
    empty = "''"
    _taken = "str(buffer[position:stop], 'utf-8')"
    _sent = "{}.encode()"
