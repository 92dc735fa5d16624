"""The types made of other types: arrays and structs, found by resolving a class's annotations.

A struct's fields follow each other without anything between them. In flexible versions tagged
fields come last: their number, then tag, size and content of each, in the order of the tags. A
struct that can be null has a byte before it: 1 if it is there, -1 if not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeGuard, get_args, get_origin, get_type_hints

from millstream.protocol.emitter import ReadEmitter, Unit, WriteEmitter
from millstream.protocol.notation import Field, Struct
from millstream.protocol.primitives import PlainArray
from millstream.protocol.wire_types import FixedWidth, Sized, WireType


class Member(NamedTuple):
    """A field with its resolved type."""

    name: str
    field: Field
    type: WireType


class Array(Sized):
    """A count, then so many values."""

    empty = "()"

    def __init__(self, element: WireType) -> None:
        self._element = element

    def emit_read_content(self, code: ReadEmitter, target: str, label: str, size: str) -> None:
        unit, element = code.unit, self._element
        needed = element.minimum_bytes(unit.version, is_flexible=unit.is_flexible)
        # Even of things that take no room there are never more than bytes, so that a lying
        # count cannot make us build a huge list.
        code.check_size(size, unit_bytes=max(needed, 1), label=label)
        code.take_elements(size, label=label)
        if _is_plain(element):
            read = unit.bind("read_plain", PlainArray(element.code).read)
            code.line(f"{target} = {read}(buffer, position, {size})")
            code.line(f"position += {size} * {element.size_bytes}")
            return
        items, item = unit.name("items"), unit.name("item")
        code.line(f"{target} = {items} = []")
        with code.block(f"for _ in range({size}):"):
            element.emit_read(code, item, label, is_nullable=False)
            code.line(f"{items}.append({item})")

    def emit_write_content(self, code: WriteEmitter, source: str) -> None:
        items, item = code.unit.name("items"), code.unit.name("item")
        code.declare(f"{items} = {source}")
        code.size(f"len({items})", self.legacy_code)
        if _is_plain(self._element):
            write = code.unit.bind("write_plain", PlainArray(self._element.code).write)
            code.part(f"{write}({items})")
            return
        with code.block(f"for {item} in {items}:"):
            self._element.emit_write(code, item, is_nullable=False)
            code.end_slice()


def _is_plain(element: WireType) -> TypeGuard[FixedWidth]:
    """Whether one call of `struct` can take a whole array of these."""
    return isinstance(element, FixedWidth) and len(element.code) == 1


class Nested(WireType):
    """A struct, written out where it stands."""

    def __init__(self, cls: type[Struct]) -> None:
        self._cls = cls

    def minimum_bytes(self, version: int, *, is_flexible: bool) -> int:
        size_bytes = 1 if is_flexible else 0
        untagged, _ = self._members(version)
        for _, field, kind in untagged:
            if isinstance(kind, Nested) and field.is_nullable_in(version):
                size_bytes += 1
            else:
                size_bytes += kind.minimum_bytes(version, is_flexible=is_flexible)
        return size_bytes

    def emit_read(self, code: ReadEmitter, target: str, label: str, *, is_nullable: bool) -> None:
        if not is_nullable:
            self._emit_read_fields(code, target)
            return
        mark = code.unit.name("mark")
        code.fixed("b", mark)
        with code.block(f"if {mark} == -1:"):
            code.line(f"{target} = None")
        with code.block(f"elif {mark} == 1:"):
            self._emit_read_fields(code, target)
        with code.block("else:"):
            code.line(f"raise bad_presence({label!r}, {mark})")

    def emit_write(self, code: WriteEmitter, source: str, *, is_nullable: bool) -> None:
        if not is_nullable:
            self._emit_write_fields(code, source)
            return
        with code.block(f"if {source} is None:"):
            code.fixed("b", "-1")
        with code.block("else:"):
            code.fixed("b", "1")
            self._emit_write_fields(code, source)

    def _emit_read_fields(self, code: ReadEmitter, target: str) -> None:
        unit = code.unit
        value = target
        made = f"new({unit.bind('cls', self._cls)})"
        if not target.isidentifier():
            value = unit.name("value")
            made = f"{target} = {made}"
        code.declare(f"{value} = {made}")
        untagged, tagged = self._members(unit.version)
        for name, field, kind in untagged:
            is_nullable = field.is_nullable_in(unit.version)
            label = f"{self._cls.__name__}.{name}"
            kind.emit_read(code, f"{value}.{name}", label, is_nullable=is_nullable)
        if unit.is_flexible:
            tags = _emit_tag_table(unit, tagged)
            with code.block("if buffer[position]:"):
                code.line(
                    f"position, left = read_tags({value}, buffer, position, end, {tags}, left)"
                )
            with code.block("else:"):
                code.line("position += 1")

    def _emit_write_fields(self, code: WriteEmitter, source: str) -> None:
        unit = code.unit
        value = source
        if not source.isidentifier():
            value = unit.name("value")
            code.declare(f"{value} = {source}")
        untagged, tagged = self._members(unit.version)
        for name, field, kind in untagged:
            is_nullable = field.is_nullable_in(unit.version)
            content = f"{value}.{name}"
            if field.nullable is not None and not is_nullable:
                content = f"({content} or {kind.empty})"
            kind.emit_write(code, content, is_nullable=is_nullable)
        if not unit.is_flexible:
            return
        if tagged:
            _emit_write_tags(code, value, tagged)
        else:
            with code.block(f"if {value}.unknown_tags:"):
                code.line(f"write_tags(append, {value}.unknown_tags)")
            with code.block("else:"):
                code.part("b'\\0'")

    def _members(self, version: int) -> tuple[list[Member], list[Member]]:
        """The untagged and the tagged fields of a version, in order."""
        members = _members_of(self._cls)  # type: ignore[arg-type]  # a class can be hashed
        present = [member for member in members if member.field.exists_in(version)]
        return (
            [member for member in present if member.field.tag is None],
            [member for member in present if member.field.tag is not None],
        )


def _emit_tag_table(unit: Unit, tagged: list[Member]) -> str:
    """Define what `read_tags` must know: by tag, a field's name and the reader of its content."""
    rows = []
    for name, field, kind in tagged:
        function = unit.name("read_tag")
        inner = ReadEmitter(unit)
        kind.emit_read(inner, "content", name, is_nullable=field.is_nullable_in(unit.version))
        inner.line("return content, position, left")
        inner.finish(function, "buffer, position, end, left")
        rows.append(f"{field.tag}: ({name!r}, {function})")
    table = unit.name("tags")
    unit.add(f"{table} = {{{', '.join(rows)}}}")
    return table


def _emit_write_tags(code: WriteEmitter, value: str, tagged: list[Member]) -> None:
    unit = code.unit
    tags = unit.name("tags")
    code.line(f"{tags} = dict({value}.unknown_tags)")
    for name, field, kind in tagged:
        function = unit.name("write_tag")
        inner = WriteEmitter(unit)
        inner.declare("parts = []")
        inner.declare("append = parts.append")
        kind.emit_write(inner, "content", is_nullable=field.is_nullable_in(unit.version))
        inner.line("return b''.join(parts)")
        inner.finish(function, "content")
        content = f"{value}.{name}"
        with code.block(f"if {_differs(code, content, field, kind)}:"):
            code.line(f"{tags}[{field.tag}] = {function}({content})")
    code.line(f"write_tags(append, {tags})")


def _differs(code: WriteEmitter, content: str, field: Field, kind: WireType) -> str:
    """An expression for: the field is not its default, which is not sent."""
    if field.default is None:
        return f"{content} is not None"
    if isinstance(kind, Array):
        return content
    return f"{content} != {code.unit.bind('default', field.default)}"


@cache
def _members_of(cls: type[Struct]) -> tuple[Member, ...]:
    """The fields of a class in the order in which they are declared, with their types."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(Member(name, field, _resolve(hints[name])) for name, field in cls.FIELDS.items())


def _resolve(hint: Any) -> WireType:
    """The wire type of an annotation."""
    for note in getattr(hint, "__metadata__", ()):
        if isinstance(note, WireType):
            return note
    if isinstance(hint, type) and issubclass(hint, Struct):
        return Nested(hint)
    arguments = [argument for argument in get_args(hint) if argument is not NoneType]
    assert len(arguments) == 1, f"{hint} is not a type of the wire"
    if get_origin(hint) is Sequence:
        return Array(_resolve(arguments[0]))
    return _resolve(arguments[0])
