"""Makes fast readers and writers out of declarations, one pair per class and version.

Source is generated for the class with all structs inside it, then executed once. Nothing that
comes from outside gets into it: only names and numbers of the declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millstream.errors import MalformedMessage
from millstream.protocol import primitives
from millstream.protocol.composite_types import Nested
from millstream.protocol.emitter import ReadEmitter, Unit, WriteEmitter
from millstream.protocol.notation import Struct

Reader = Callable[[primitives.Buffer, int, int, int], tuple[Any, int, int]]
Writer = Callable[[Any], list[Any]]
SliceWriter = Callable[[Any], Iterator[bytes]]

_RUNTIME: dict[str, object] = {
    "SHORT_VARINTS": primitives.SHORT_VARINTS,
    "bad_presence": primitives.bad_presence,
    "bad_size": primitives.bad_size,
    "too_many": primitives.too_many,
    "new": object.__new__,
    "read_long_size": primitives.read_long_size,
    "read_tags": primitives.read_tags,
    "varint": primitives.varint,
    "write_tags": primitives.write_tags,
}


def compile_reader(cls: type[Struct], version: int) -> Reader:
    """A function from (buffer, position, end, elements that it may have) to a value.

    With it come the position after it, and how many elements of the allowed are left.
    """
    unit = _unit(cls, version)
    code = ReadEmitter(unit)
    Nested(cls).emit_read(code, "message", cls.__name__, is_nullable=False)
    code.line("return message, position, left")
    code.finish("read", "buffer, position, end, left")
    reader: Reader = _execute(unit, f"<reader of {cls.__name__} {version}>")["read"]
    return reader


def compile_writer(cls: type[Struct], version: int) -> Writer:
    """A function from a value to the parts that make up its bytes."""
    unit = _unit(cls, version)
    code = WriteEmitter(unit)
    code.declare("parts = []")
    code.declare("append = parts.append")
    Nested(cls).emit_write(code, "message", is_nullable=False)
    code.line("return parts")
    code.finish("write", "message")
    writer: Writer = _execute(unit, f"<writer of {cls.__name__} {version}>")["write"]
    return writer


def compile_slice_writer(cls: type[Struct], version: int) -> SliceWriter:
    """A generator function from a value to slices of its bytes, made when they are asked for."""
    unit = _unit(cls, version)
    code = WriteEmitter(unit, slices=True)
    code.declare("parts = []")
    code.declare("append = parts.append")
    Nested(cls).emit_write(code, "message", is_nullable=False)
    code.line("yield b''.join(parts)")
    code.finish("write", "message")
    writer: SliceWriter = _execute(unit, f"<slices of {cls.__name__} {version}>")["write"]
    return writer


def _unit(cls: type[Struct], version: int) -> Unit:
    assert cls.VERSIONS is not None, f"{cls.__name__} is only a part of messages"
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise MalformedMessage(f"{cls.__name__} has no version {version}")
    is_flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
    return Unit(version=version, is_flexible=is_flexible, namespace=dict(_RUNTIME))


def _execute(unit: Unit, title: str) -> dict[str, Any]:
    exec(compile(unit.source, title, "exec"), unit.namespace)  # noqa: S102
    return unit.namespace
