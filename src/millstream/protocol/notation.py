"""The notation in which every message is declared, once, for all its versions.

    class FindCoordinatorRequest(Struct, api_key=10, versions=(0, 6), flexible=3):
        key: String = field(until=3)
        key_type: Int8 = field(since=1)
        coordinator_keys: Sequence[String] = field(since=4)

A field belongs to the versions from `since` to `until`, both included. `nullable` is the first
version in which it may be null. A field with a `tag` is sent among the tagged ones, and only when
it differs from its default. From version `flexible` on, sizes are compact and structs end in
tagged fields.

Structs are values: built with keywords, compared field by field. What is not set has its default:
0, False, an empty string or sequence, null where null is possible. A value that the version
being written does not know is left out; null is written as empty in versions without null.
Tagged fields that we do not know are kept in `unknown_tags`, and written again.

Invariant: importing a declaration compiles nothing and resolves no annotation, so that a broker
pays only for the versions that its clients speak.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, dataclass_transform

from millstream.protocol.wire_types import FixedWidth, SizedBytes, SizedText, SizedView

Bool = Annotated[bool, FixedWidth("?")]
Int8 = Annotated[int, FixedWidth("b")]
Int16 = Annotated[int, FixedWidth("h")]
Uint16 = Annotated[int, FixedWidth("H")]
Int32 = Annotated[int, FixedWidth("i")]
Uint32 = Annotated[int, FixedWidth("I")]
Int64 = Annotated[int, FixedWidth("q")]
Float64 = Annotated[float, FixedWidth("d")]
Uuid = Annotated[bytes, FixedWidth("16s")]
String = Annotated[str, SizedText()]
Bytes = Annotated[bytes, SizedBytes()]
Records = Annotated[bytes | memoryview, SizedView()]

NO_UUID = bytes(16)

_UNSET: Any = object()
_NO_TAGS: Mapping[int, bytes] = MappingProxyType({})
_IMPLICIT_DEFAULTS: Mapping[str, object] = {
    "Bool": False,
    "Int8": 0,
    "Int16": 0,
    "Uint16": 0,
    "Int32": 0,
    "Uint32": 0,
    "Int64": 0,
    "Float64": 0.0,
    "Uuid": NO_UUID,
    "String": "",
    "Bytes": b"",
    "Records": b"",
}


class Field:
    """What the notation says about one field, apart from its type."""

    __slots__ = ("default", "nullable", "since", "tag", "until")

    def __init__(
        self, since: int, until: int | None, nullable: int | None, tag: int | None, default: object
    ) -> None:
        self.since = since
        self.until = until
        self.nullable = nullable
        self.tag = tag
        self.default = default

    def exists_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable is not None and self.nullable <= version


def field(
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    tag: int | None = None,
    default: object = _UNSET,
) -> Any:
    """Declare a field; its type is its annotation."""
    return Field(since, until, nullable, tag, default)


# `field` is not named as a field specifier on purpose: a type checker then takes every field as
# one with a default, which is what it is.
@dataclass_transform(kw_only_default=True)
class Struct:
    """Base of all messages and of the structs inside them."""

    API_KEY: ClassVar[int | None] = None
    VERSIONS: ClassVar[tuple[int, int] | None] = None
    FLEXIBLE: ClassVar[int | None] = None
    FIELDS: ClassVar[Mapping[str, Field]] = {}

    unknown_tags: Mapping[int, bytes] = _NO_TAGS

    def __init_subclass__(
        cls,
        *,
        api_key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible: int | None = None,
    ) -> None:
        cls.API_KEY = api_key
        cls.VERSIONS = versions
        cls.FLEXIBLE = flexible
        fields = {name: item for name, item in cls.__dict__.items() if type(item) is Field}
        for name, item in fields.items():
            if item.default is _UNSET:
                item.default = _implicit_default(cls, cls.__annotations__[name])
            setattr(cls, name, item.default)
        cls.FIELDS = fields

    def __init__(self, **values: Any) -> None:
        for name in values:
            if name not in self.FIELDS:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            _is_same(getattr(self, name), getattr(other, name)) for name in self.FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # fields can be set

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"


def _implicit_default(cls: type[Struct], annotation: str) -> object:
    if annotation in _IMPLICIT_DEFAULTS:
        return _IMPLICIT_DEFAULTS[annotation]
    if annotation.endswith("| None"):
        return None
    if annotation.startswith("Sequence["):
        return ()
    nested: type[Struct] = getattr(sys.modules[cls.__module__], annotation)
    return nested()


def _is_same(left: object, right: object) -> bool:
    """Whether two values of a field are equal; a list may equal a tuple."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return list(left) == list(right)
    return left == right
