"""Requests that list as much as one can, built from the declarations: none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from millstream.gateways.kafka.routes import ROUTES
from millstream.protocol.apis import APIS, request_class
from millstream.protocol.notation import Struct

Path = tuple[str, ...]


class FullArray(NamedTuple):
    """An array of a request, by the fields that lead to it."""

    api_key: int
    version: int
    path: Path

    def __str__(self) -> str:
        return f"{APIS[self.api_key].name}-{self.version}-{'.'.join(self.path)}"

    def request(self, count: int) -> Struct:
        """A request in which this array has so many elements, all different."""
        return _filled(request_class(self.api_key), self.version, self.path, count)


def full_arrays() -> Iterator[FullArray]:
    """Every array of every API, in the newest version that has it."""
    for api_key, route in sorted(ROUTES.items()):
        paths = {
            path: version
            for version in range(route.oldest, route.newest + 1)
            for path in _paths(route.request, version)
        }
        yield from (FullArray(api_key, version, path) for path, version in paths.items())


def _paths(cls: type[Struct], version: int) -> Iterator[Path]:
    for name, element in _arrays(cls, version):
        yield (name,)
        if element is not None:
            yield from ((name, *path) for path in _paths(element, version))


def _arrays(cls: type[Struct], version: int) -> Iterator[tuple[str, type[Struct] | None]]:
    """The arrays of a struct, each with the class of its elements if they are structs."""
    hints = get_type_hints(cls)
    for name, field in cls.FIELDS.items():
        if not field.exists_in(version):
            continue
        for hint in (hints[name], *get_args(hints[name])):
            if get_origin(hint) is Sequence:
                [element] = (each for each in get_args(hint) if each is not NoneType)
                is_struct = isinstance(element, type) and issubclass(element, Struct)
                yield name, element if is_struct else None


def _filled(cls: type[Struct], version: int, path: Path, count: int) -> Struct:
    name, *rest = path
    element = dict(_arrays(cls, version))[name]
    if rest:
        assert element is not None
        return cls(**{name: [_filled(element, version, tuple(rest), count)]})
    text = _text(element, version) if element is not None else None
    is_text = "str" in str(get_type_hints(cls)[name])
    most = 1 << 7 if "Int8" in cls.__annotations__[name] else 1 << 31
    elements: list[Any] = []
    for number in range(count):
        if element is None:
            elements.append(f"{number:x}" if is_text else number % most)
        else:
            elements.append(element() if text is None else element(**{text: f"{number:x}"}))
    return cls(**{name: elements})


def _text(cls: type[Struct], version: int) -> str | None:
    """The first field of a struct that is a text: most likely what it is known by."""
    hints = get_type_hints(cls)
    texts = (
        name
        for name, field in cls.FIELDS.items()
        if field.exists_in(version) and str in (hints[name], *get_args(hints[name]))
    )
    return next(texts, None)
