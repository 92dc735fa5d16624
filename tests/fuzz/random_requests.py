"""Random requests of every API and version: well formed, and now and then about what exists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from millstream.gateways.kafka.routes import ANNOUNCED
from millstream.protocol.apis import request_class
from millstream.protocol.composite_types import Array, Member, Nested, _members_of
from millstream.protocol.notation import Struct
from millstream.protocol.wire_types import FixedWidth, SizedBytes, SizedText, SizedView, WireType
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import request_frame
from tests.fakes.wire_messages import FetchRequest, ProduceRequest

TOPICS = ("first", "second", "compacted", "missing", "__consumer_offsets", "")
GROUPS = ("readers", "others", "more", "")
_HAND_WRITTEN: dict[int, type[Struct]] = {0: ProduceRequest, 1: FetchRequest}
_NUMBERS = (-1, 0, 1, 2, 3, 100)
_WIDTHS = {"b": 8, "h": 16, "H": 16, "i": 32, "I": 32, "q": 64}
_UNSIGNED = {"H", "I"}
_BATCHES = tuple(
    bytes(batch)
    for batch in (batch_of(b"x"), batch_of(b"y" * 50, b"z"), batch_of(b""), bytearray(b"short"))
)
# What a field of this name must hold for a request to get anywhere, most of the time.
_USUAL: dict[str, tuple[Any, ...]] = {
    "max_wait_ms": (0, 0, 0, 1, 1000),
    "max_bytes": (1 << 20, 1),
    "partition_max_bytes": (1 << 20, 1),
    "session_id": (0,),
    "acks": (0, 1, 1, -1),
    "timeout_ms": (1, 1000),
    "partition": (0, 0, 1),
    "partition_index": (0, 0, 1),
    "index": (0, 0, 1),
    "session_timeout_ms": (6000, 30_000),
    "rebalance_timeout_ms": (1, 30_000),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "generation_id": (-1, 1),
    "generation_id_or_member_epoch": (-1, 1),
    "member_epoch": (0, 0, 1, -1),
    "member_id": ("", "", "member"),
    "group_instance_id": (None, None, "static"),
    "instance_id": (None, "static"),
    "transactional_id": (None,),
    "resource_type": (2, 2, 4),
    "replication_factor": (-1, 1),
    "num_partitions": (-1, 1, 2),
    "subscribed_topic_regex": (None, "f.*", "(a|b)+c"),
    "server_assignor": (None, "uniform", "range"),
    "current_leader_epoch": (-1, 0),
}


def all_requests() -> Iterator[tuple[int, int]]:
    """Every API key with each of its versions."""
    for api_key, oldest, newest in ANNOUNCED:
        for version in range(oldest, newest + 1):
            yield api_key, version


def random_request(chance: random.Random, api_key: int, version: int, correlation_id: int) -> bytes:
    """A whole frame."""
    struct = _HAND_WRITTEN.get(api_key) or request_class(api_key)
    value = _random_struct(chance, struct, version)
    return request_frame(value, version, correlation_id)


known_ids: list[bytes] = []
"""Ids of topics that exist, or did."""


def _random_struct(chance: random.Random, struct: type[Struct], version: int) -> Struct:
    value = struct()
    for name, field, kind in _fields(struct):
        if not field.exists_in(version):
            continue
        usual = _USUAL.get(name)
        if usual is not None and chance.random() < 0.9:
            picked = chance.choice(usual)
            if picked is not None or field.is_nullable_in(version):
                setattr(value, name, picked)
        elif field.is_nullable_in(version) and chance.random() < 0.1:
            setattr(value, name, None)
        else:
            setattr(value, name, _random_value(chance, name, kind, version))
    return value


def _fields(struct: type[Struct]) -> tuple[Member, ...]:
    return _cached_fields(struct)  # type: ignore[arg-type]  # a class can be hashed


@cache
def _cached_fields(struct: type[Struct]) -> tuple[Member, ...]:
    return _members_of(struct)  # type: ignore[arg-type]


def _random_value(chance: random.Random, name: str, kind: WireType, version: int) -> Any:
    if isinstance(kind, Array):
        count = chance.choice((0, 1, 1, 1, 2))
        return [_random_value(chance, name, kind._element, version) for _ in range(count)]
    if isinstance(kind, Nested):
        return _random_struct(chance, kind._cls, version)
    if isinstance(kind, FixedWidth):
        return _random_fixed(chance, kind.code)
    if isinstance(kind, SizedText):
        return _random_text(chance, name)
    if isinstance(kind, SizedBytes):
        return chance.randbytes(chance.choice((0, 1, 8, 40)))
    assert isinstance(kind, SizedView)
    return chance.choice(_BATCHES)


def _random_fixed(chance: random.Random, code: str) -> Any:
    if code == "?":
        return chance.random() < 0.5
    if code == "16s":
        return chance.choice([*known_ids, bytes(16), chance.randbytes(16)])
    if code == "d":
        return chance.random()
    if chance.random() < 0.8:
        number = chance.choice(_NUMBERS)
        return max(number, 0) if code in _UNSIGNED else number
    bits = _WIDTHS[code]
    return chance.getrandbits(bits) - (0 if code in _UNSIGNED else 1 << (bits - 1))


def _random_text(chance: random.Random, name: str) -> str:
    if "group" in name or name in {"key", "coordinator_keys"}:
        return chance.choice(GROUPS)
    if chance.random() < 0.7:
        return chance.choice(TOPICS)
    return chance.choice(("consumer", "range", "cleanup.policy", "ä" * 3, "a/../b", "x" * 300))
