"""Random messages, as kio's entities and as ours.

A message is first drawn as plain data in the shape of a kio entity: a dict by our field names,
of ints, text, bytes, lists and further dicts. From that, `as_entity` makes kio's value and
`as_struct` makes ours.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import types
import typing
import uuid
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from millstream.protocol.apis import APIS
from millstream.protocol.notation import Struct

Plain = dict[str, Any]
Convert = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)
_TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_TEXT = st.text(max_size=8) | st.just("x" * 200)
_BINARY = st.binary(max_size=8) | st.just(b"x" * 200)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": _BINARY,
    "records": _BINARY,
    "uuid": st.binary(min_size=16, max_size=16),
    "error_code": st.sampled_from([code.value for code in ErrorCode]),
    "timedelta_i32": _integers(32),
    # Python's times do not reach as far, and lose milliseconds before they end.
    "timedelta_i64": _integers(40),
    "datetime_i64": st.integers(0, 2**40),
}


class EntityField(typing.NamedTuple):
    """A field of a kio entity."""

    name: str
    kafka_type: str | None
    entity: Any
    is_array: bool
    is_nullable: bool
    default: Any

    @property
    def our_name(self) -> str:
        return f"{self.name}_ms" if self.kafka_type in _TIMES else self.name


def entity_class(api_key: int, version: int, kind: str) -> Any:
    """kio's class of a request or a response."""
    api = APIS[api_key]
    snake_case = api.module.rpartition(".")[2]
    module = import_module(f"kio.schema.{snake_case}.v{version}.{kind.lower()}")
    return getattr(module, api.name + kind)


@cache
def entity_fields(entity: Any) -> tuple[EntityField, ...]:
    """What kio says about the fields of an entity."""
    hints = typing.get_type_hints(entity)
    return tuple(_entity_field(field, hints[field.name]) for field in dataclasses.fields(entity))


def _entity_field(field: dataclasses.Field[Any], hint: Any) -> EntityField:
    kafka_type = field.metadata.get("kafka_type")
    # kio takes no id to be null; on the wire it is zeros.
    is_nullable = _is_optional(hint) and kafka_type != "uuid"
    hint = _without_none(hint)
    is_array = typing.get_origin(hint) is tuple
    if is_array:
        hint = _without_none(typing.get_args(hint)[0])
    return EntityField(field.name, kafka_type, hint, is_array, is_nullable, field.default)


def _is_optional(hint: Any) -> bool:
    is_union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return is_union and types.NoneType in typing.get_args(hint)


def _without_none(hint: Any) -> Any:
    return typing.get_args(hint)[0] if _is_optional(hint) else hint


@cache
def plain_messages(entity: Any) -> st.SearchStrategy[Plain]:
    """Random plain data in the shape of an entity."""
    return st.fixed_dictionaries(
        {field.our_name: _plain_values(field) for field in entity_fields(entity)}
    )


def _plain_values(field: EntityField) -> st.SearchStrategy[Any]:
    values = _VALUES[field.kafka_type] if field.kafka_type else plain_messages(field.entity)
    if field.is_array:
        values = st.lists(values, max_size=2)
    if field.is_nullable:
        values = st.none() | values
    if field.default is not dataclasses.MISSING:
        values = st.just(plain_default(field)) | values
    return values


def plain_default(field: EntityField) -> Any:
    """A field's default as plain data."""
    default = field.default
    if isinstance(default, dt.timedelta):
        return default // _MILLISECOND
    if dataclasses.is_dataclass(default):
        return {each.our_name: getattr(default, each.name) for each in entity_fields(field.entity)}
    return list(default) if isinstance(default, tuple) else default


def as_entity(entity: Any, plain: Plain) -> Any:
    """kio's value of plain data."""
    values = {}
    for field in entity_fields(entity):
        convert = _LEAVES.get(field.kafka_type, _unchanged)
        if field.kafka_type is None:
            convert = partial(as_entity, field.entity)
        values[field.name] = _converted(plain[field.our_name], field, convert)
    return entity(**values)


def as_struct(struct: type[Struct], entity: Any, plain: Plain) -> Struct:
    """Our value of plain data."""
    values = {}
    for field in entity_fields(entity):
        name, convert = field.our_name, _unchanged
        if field.kafka_type is None:
            convert = partial(as_struct, nested_structs(struct)[name], field.entity)
        values[name] = _converted(plain[name], field, convert)
    return struct(**values)


def _converted(value: Any, field: EntityField, convert: Convert) -> Any:
    if value is None:
        return None
    return tuple(map(convert, value)) if field.is_array else convert(value)


def _unchanged(value: Any) -> Any:
    return value


_LEAVES: dict[str | None, Convert] = {
    "error_code": ErrorCode,
    "uuid": lambda value: uuid.UUID(bytes=value),
    "timedelta_i32": lambda value: value * _MILLISECOND,
    "timedelta_i64": lambda value: value * _MILLISECOND,
    "datetime_i64": lambda value: _EPOCH + value * _MILLISECOND,
}


def nested_structs(struct: type[Struct]) -> dict[str, type[Struct]]:
    """The structs inside one of ours, by the names of their fields."""
    return _nested_structs(struct)  # type: ignore[arg-type]  # a class can be hashed


@cache
def _nested_structs(struct: type[Struct]) -> dict[str, type[Struct]]:
    hints = typing.get_type_hints(struct, include_extras=True)
    return {name: found for name, hint in hints.items() if (found := _struct_in(hint))}


def _struct_in(hint: Any) -> type[Struct] | None:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    return next(filter(None, map(_struct_in, typing.get_args(hint))), None)


def entity_bytes(value: Any) -> bytes:
    """What kio writes."""
    out = io.BytesIO()
    entity_writer(type(value))(out, value)
    return out.getvalue()
