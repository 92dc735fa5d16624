"""The Python source of a compiled reader or writer, as it grows.

Fixed-width values are not read or written at once: they are collected, and the whole run of them
becomes one call of `unpack_from` or `pack`, also across the borders of structs. Whatever depends
on the position in the buffer ends the run.

Generated code has these variables: `buffer`, `position`, `end` and `left`, the number of elements
that may yet come, in a reader; `parts` and its `append` in a writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

SMALL_VARINT = 0x80
_SLICE_PARTS = 4096
"""Pieces of bytes that are joined to a slice: some tens of KiB, a few milliseconds of work."""


class Unit:
    """What is compiled together: one class in one version, with all that is inside it."""

    def __init__(self, *, version: int, is_flexible: bool, namespace: dict[str, object]) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.namespace = namespace
        self._definitions: list[str] = []
        self._numbers = count(1)

    def name(self, stem: str) -> str:
        """A name that nothing else in this unit has."""
        return f"{stem}_{next(self._numbers)}"

    def bind(self, stem: str, value: object) -> str:
        """Make a value known to the generated code; the name it has there."""
        name = self.name(stem)
        self.namespace[name] = value
        return name

    def add(self, source: str) -> None:
        """Add a definition, which may use those before it."""
        self._definitions.append(source)

    @property
    def source(self) -> str:
        return "\n\n".join(self._definitions)


class Emitter:
    """The lines of one function, and the run of fixed-width values that is still open."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._lines: list[str] = []
        self._depth = 1
        self._run: list[tuple[str, str]] = []

    def fixed(self, code: str, place: str) -> None:
        """Add a value to the run: `place` is where a reader puts it, a writer finds it."""
        self._run.append((code, place))

    def declare(self, text: str) -> None:
        """A line that works the same before an open run as after it."""
        self._lines.append("    " * self._depth + text)

    def line(self, text: str) -> None:
        """A line that needs the run before it done."""
        self.end_run()
        self.declare(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self.end_run()
        self._depth -= 1

    def end_run(self) -> None:
        if self._run:
            codes = "".join(code for code, _ in self._run)
            places = [place for _, place in self._run]
            self._run = []
            self._emit_run(struct.Struct(">" + codes), places)

    def finish(self, name: str, arguments: str) -> None:
        """Close the function and hand it to the unit."""
        self.end_run()
        self.unit.add("\n".join([f"def {name}({arguments}):", *self._lines]))

    def _emit_run(self, layout: struct.Struct, places: list[str]) -> None:
        raise NotImplementedError


class ReadEmitter(Emitter):
    """Source that reads."""

    def size(self, legacy_code: str) -> str:
        """Read the size of what follows into a variable, -1 for null; its name."""
        size = self.unit.name("size")
        if not self.unit.is_flexible:
            self.fixed(legacy_code, size)
            return size
        self.line(f"{size} = buffer[position] - 1")
        with self.block(f"if {size} < {SMALL_VARINT - 1}:"):
            self.line("position += 1")
        with self.block("else:"):
            self.line(f"{size}, position = read_long_size(buffer, position)")
        return size

    def check_size(self, size: str, *, unit_bytes: int, label: str) -> None:
        """Refuse a size that is null, or is more than there are bytes for."""
        needed = size if unit_bytes == 1 else f"{size} * {unit_bytes}"
        with self.block(f"if not 0 <= {needed} <= end - position:"):
            self.line(f"raise bad_size({label!r}, {size}, end - position)")

    def take_elements(self, count: str, *, label: str) -> None:
        """Refuse more elements than a message may have, before any of them is built."""
        self.line(f"left -= {count}")
        with self.block("if left < 0:"):
            self.line(f"raise too_many({label!r})")

    def _emit_run(self, layout: struct.Struct, places: list[str]) -> None:
        unpack = self.unit.bind("unpack", layout.unpack_from)
        self.declare(f"({', '.join(places)},) = {unpack}(buffer, position)")
        self.declare(f"position += {layout.size}")


class WriteEmitter(Emitter):
    """Source that writes: all at once, or in slices."""

    def __init__(self, unit: Unit, *, slices: bool = False) -> None:
        super().__init__(unit)
        self._slices = slices

    def end_slice(self) -> None:
        """Between two elements: hand out what has been written, if it is enough for a slice."""
        if self._slices:
            with self.block(f"if len(parts) > {_SLICE_PARTS}:"):
                self.line("yield b''.join(parts)")
                self.line("parts.clear()")

    def part(self, expression: str) -> None:
        """Append bytes."""
        self.line(f"append({expression})")

    def size(self, expression: str, legacy_code: str) -> None:
        """Write the size of what follows."""
        if not self.unit.is_flexible:
            self.fixed(legacy_code, expression)
            return
        size = self.unit.name("size")
        self.declare(f"{size} = {expression} + 1")
        self.part(f"SHORT_VARINTS[{size}] if {size} < {SMALL_VARINT} else varint({size})")

    def null_size(self, legacy_code: str) -> None:
        """Write the size that says that there is nothing, not even something empty."""
        if self.unit.is_flexible:
            self.part("b'\\0'")
        else:
            self.fixed(legacy_code, "-1")

    def _emit_run(self, layout: struct.Struct, places: list[str]) -> None:
        pack = self.unit.bind("pack", layout.pack)
        self.declare(f"append({pack}({', '.join(places)}))")
