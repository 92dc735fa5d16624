"""Answers that refuse what was asked for, built from the request: the same for every API.

An answer repeats what the request names: topics, partitions, groups, keys. An error is told for
each of them where the protocol has a place for that, and else once, for the request as a whole.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from millstream.protocol.notation import Struct

_SEQUENCE = re.compile(r"Sequence\[(\w+)\]")

# From which field of the request an answer's sequence is built.
_SOURCES: Mapping[str, tuple[str, ...]] = {
    "topics": ("topics",),
    "partitions": ("partitions", "partition_indexes"),
    "groups": ("groups", "group_ids"),
    "results": ("topics", "resources", "groups_names", "creations"),
    "filter_results": ("filters",),
    "responses": ("topics", "topic_names", "resources"),
    "coordinators": ("coordinator_keys",),
    "transaction_states": ("transactional_ids",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
}
_CODES = ("error_code", "partition_error_code")
# What an element of the answer is known by, where the request has a plain number or text for it.
_IDENTITIES = (
    "partition_index",
    "partition_id",
    "partition",
    "key",
    "transactional_id",
    "group_id",
    "name",
    "topic",
)


def refusal(cls: type[Struct], request: object, code: int, version: int) -> Struct:
    """An answer of a class that refuses all that a request asks for."""
    values: dict[str, Any] = {}
    is_told = False
    for name, field in cls.FIELDS.items():
        if not field.exists_in(version):
            continue
        nested = _nested(cls, name)
        if nested is None:
            if name not in _CODES and hasattr(request, name):
                values[name] = getattr(request, name)
        elif items := _source(request, name):
            values[name] = refused = [refusal(nested, each, code, version) for each in items]
            is_told |= any(map(holds_code, refused))
    if not isinstance(request, Struct):
        values[next(each for each in _IDENTITIES if each in cls.FIELDS)] = request
    if not is_told:
        values |= {n: code for n in _CODES if n in cls.FIELDS and cls.FIELDS[n].exists_in(version)}
    return cls(**values)


def tells_errors_by_place(answer: Struct) -> bool:
    """Whether an answer has its errors with the places, and none of its own."""
    return any(
        bool(getattr(answer, name)) and _nested(type(answer), name) is not None
        for name in answer.FIELDS
        if name in _SOURCES
    )


def holds_code(answer: Struct) -> bool:
    """Whether an error is told anywhere in an answer."""
    for name in answer.FIELDS:
        value = getattr(answer, name)
        if name in _CODES and value:
            return True
        items = value if isinstance(value, list | tuple) else ()
        if any(isinstance(each, Struct) and holds_code(each) for each in items):
            return True
    return False


def merge(answer: Struct, refused: Struct) -> None:
    """Put the refusals of some places into the answer about the others."""
    for name in refused.FIELDS:
        if _nested(type(refused), name) is None or name not in _SOURCES:
            continue
        items = list(getattr(answer, name) or ())
        for each in getattr(refused, name) or ():
            twin = next((item for item in items if _is_same(item, each)), None)
            if twin is None:
                items.append(each)
            else:
                merge(twin, each)
        setattr(answer, name, items)


def mark(answer: Struct, code: int, topic: str | None) -> None:
    """Tell an error with each topic of an answer, or with those of one name."""
    for name in answer.FIELDS:
        nested = _nested(type(answer), name)
        for each in getattr(answer, name) if nested is not None else ():
            known_by = getattr(each, "name", getattr(each, "topic", None))
            if topic is not None and known_by not in {topic, None}:
                continue
            for field in _CODES:
                if field in each.FIELDS:
                    setattr(each, field, code)
            if known_by is None:
                mark(each, code, topic)


def _source(request: object, name: str) -> list[Any]:
    for field in _SOURCES.get(name, ()):
        if value := getattr(request, field, None):
            return list(value)
    return []


def _nested(cls: type[Struct], name: str) -> type[Struct] | None:
    """The class of a sequence's elements, if they are structs."""
    found = _SEQUENCE.match(cls.__annotations__[name])
    nested = getattr(sys.modules[cls.__module__], found[1], None) if found else None
    return nested if isinstance(nested, type) and issubclass(nested, Struct) else None


def _is_same(left: Struct, right: Struct) -> bool:
    """Whether two elements are about one thing that has parts of its own."""
    known_by = ("name", "topic", "topic_id", "group_id", "transactional_id")
    named = [name for name in known_by if name in left.FIELDS]
    has_parts = any(_nested(type(left), name) for name in left.FIELDS if name in _SOURCES)
    return has_parts and all(getattr(left, n) == getattr(right, n) for n in named)
