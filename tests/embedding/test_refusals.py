"""A refusal can be told by every API that we serve, in every version of it."""

from __future__ import annotations

import re
import sys

import pytest

from millstream.gateways.kafka.routes import ROUTES
from millstream.protocol.apis import APIS, response_class
from millstream.protocol.codec import decode, encode
from millstream.protocol.notation import Struct
from millstream.testing.refusals import holds_code, merge, refusal

CODE = 29
CASES = [
    pytest.param(key, version, id=f"{APIS[key].name}-{version}")
    for key, route in ROUTES.items()
    for version in range(route.oldest, route.newest + 1)
]


def sample(cls: type[Struct], version: int) -> Struct:
    """A request that names one of everything."""
    values: dict[str, object] = {}
    for name, field in cls.FIELDS.items():
        if not field.exists_in(version):
            continue
        found = re.match(r"Sequence\[(\w+)\]", cls.__annotations__[name])
        if found:
            nested = getattr(sys.modules[cls.__module__], found[1])
            plain = {"String": "a", "Int8": 1, "Int32": 1, "Int64": 1}.get(found[1])
            values[name] = [sample(nested, version) if plain is None else plain]
        elif cls.__annotations__[name].startswith("String"):
            values[name] = "a"
    return cls(**values)


@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_refusal_tells_its_code_and_survives_the_wire(api_key: int, version: int) -> None:
    request = sample(ROUTES[api_key].request, version)
    answer = refusal(response_class(api_key), request, CODE, version)
    received = decode(type(answer), version, encode(answer, version))
    assert holds_code(received)


def test_refusals_of_some_partitions_join_the_answer_about_the_others() -> None:
    cls = response_class(8)
    topic_cls = sys.modules[cls.__module__].OffsetCommitResponseTopic
    partition_cls = sys.modules[cls.__module__].OffsetCommitResponsePartition

    def topic(name: str, *codes: tuple[int, int]) -> Struct:
        partitions = [partition_cls(partition_index=n, error_code=code) for n, code in codes]
        found: Struct = topic_cls(name=name, partitions=partitions)
        return found

    answer = cls(topics=[topic("orders", (0, 0)), topic("payments", (0, 0))])
    merge(answer, cls(topics=[topic("orders", (1, CODE)), topic("returns", (0, CODE))]))
    assert answer == cls(
        topics=[
            topic("orders", (0, 0), (1, CODE)),
            topic("payments", (0, 0)),
            topic("returns", (0, CODE)),
        ]
    )
