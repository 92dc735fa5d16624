"""Our messages against kio's: the same bytes, in both directions, in every version we declare."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.static.primitive import i16, i32

from millstream.protocol.apis import APIS, is_flexible, request_class, response_class
from millstream.protocol.codec import decode, encode
from millstream.protocol.headers import response_header
from millstream.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from millstream.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from millstream.protocol.notation import Struct
from tests.fakes.examples import examples
from tests.fakes.request_header import (
    RequestHeader,
    has_flexible_response,
    parse_request_header,
)
from tests.unit.protocol.kio_values import (
    as_entity,
    as_struct,
    entity_bytes,
    entity_class,
    entity_fields,
    nested_structs,
    plain_default,
    plain_messages,
)

pytestmark = pytest.mark.hypothesis

WRITTEN_BY_HAND = {0, 1}


class Case(NamedTuple):
    """One message in one version, as kio has it and as we have it."""

    struct: type[Struct]
    version: int
    entity: Any

    def __repr__(self) -> str:
        return f"{self.struct.__name__}-{self.version}"


def _versions(struct: type[Struct]) -> range:
    assert struct.VERSIONS is not None
    first, last = struct.VERSIONS
    return range(first, last + 1)


def _cases() -> list[Case]:
    cases = []
    for api_key in sorted(APIS.keys() - WRITTEN_BY_HAND):
        for kind, struct in (
            ("Request", request_class(api_key)),
            ("Response", response_class(api_key)),
        ):
            cases += [
                Case(struct, version, entity_class(api_key, version, kind))
                for version in _versions(struct)
            ]
    for struct, name in (
        (ConsumerProtocolSubscription, "consumer_protocol_subscription"),
        (ConsumerProtocolAssignment, "consumer_protocol_assignment"),
    ):
        for version in _versions(struct):
            module = import_module(f"kio.schema.{name}.v{version}.data")
            cases.append(Case(struct, version, getattr(module, struct.__name__)))
    return cases


CASES = _cases()


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_message_has_the_bytes_of_the_oracle(case: Case) -> None:
    struct, version, entity = case

    @settings(
        max_examples=examples(5),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(plain_messages(entity))
    def check(plain: dict[str, Any]) -> None:
        theirs = entity_bytes(as_entity(entity, plain))
        ours = as_struct(struct, entity, plain)
        assert encode(ours, version) == theirs
        for buffer in (theirs, memoryview(theirs)):
            read = decode(struct, version, buffer)
            assert read == ours
            assert encode(read, version) == theirs

    check()


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_fields_and_defaults_are_those_of_the_oracle(case: Case) -> None:
    _compare_declarations(*case)


def _compare_declarations(struct: type[Struct], version: int, entity: Any) -> None:
    ours = [name for name, field in struct.FIELDS.items() if field.exists_in(version)]
    theirs = entity_fields(entity)
    assert ours == [field.our_name for field in theirs]
    for field in theirs:
        declared = struct.FIELDS[field.our_name]
        assert declared.is_nullable_in(version) == field.is_nullable
        # Empty by default is kio's way with all arrays; ours are null where they can be.
        if field.default is not dataclasses.MISSING and field.default != ():
            assert declared.default == plain_default(field)
        if field.kafka_type is None:
            nested = nested_structs(struct)[field.our_name]
            _compare_declarations(nested, version, field.entity)


@pytest.mark.parametrize("api_key", APIS)
@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_flexible_versions_are_those_of_the_oracle(api_key: int, kind: str) -> None:
    checked = 0
    for version in range(30):
        try:
            entity = entity_class(api_key, version, kind)
        except ModuleNotFoundError:
            continue
        checked += 1
        assert is_flexible(api_key, version) == entity.__flexible__
        if kind == "Response":
            is_version_1 = entity.__header_schema__ is KioResponseHeaderV1
            assert has_flexible_response(api_key, version) == is_version_1
        else:
            is_version_2 = entity.__header_schema__ is KioRequestHeaderV2
            assert is_flexible(api_key, version) == is_version_2
    assert checked


@pytest.mark.parametrize("client_id", [None, "", "grüße"])
@pytest.mark.parametrize("kio_header", [KioRequestHeaderV1, KioRequestHeaderV2])
def test_request_header_is_read_as_the_oracle_writes_it(
    client_id: str | None, kio_header: Any
) -> None:
    version = 8 if kio_header is KioRequestHeaderV1 else 9
    theirs = kio_header(
        request_api_key=i16(3),
        request_api_version=i16(version),
        correlation_id=i32(77),
        client_id=client_id,
    )
    written = entity_bytes(theirs)
    header, position = parse_request_header(written + b"body")
    assert header == RequestHeader(3, version, 77, client_id)
    assert position == len(written)


def test_response_header_is_as_the_oracle_writes_it() -> None:
    written = entity_bytes(KioResponseHeaderV1(correlation_id=i32(-5)))
    assert response_header(-5, flexible=True) == written
    assert response_header(-5, flexible=False) == written[:4]
