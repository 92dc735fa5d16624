"""Every API and version that is announced is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.index import api_key_map

from millstream.gateways.kafka.routes import ANNOUNCED, ROUTES
from millstream.protocol.apis import APIS, request_class
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.notation import Struct
from tests.fakes.open_door import open_door, run
from tests.fakes.wire_client import read_answer, request_frame
from tests.fakes.wire_messages import FetchRequest, ProduceRequest

HAND_WRITTEN: dict[int, Struct] = {
    0: ProduceRequest(acks=1, timeout_ms=1000),
    1: FetchRequest(),
}
REQUESTS = [
    (api_key, version)
    for api_key, oldest, newest in ANNOUNCED
    for version in range(oldest, newest + 1)
]


def test_every_request_that_is_announced_gets_an_answer_of_its_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            for api_key, version in REQUESTS:
                client = await opened.connect()
                request = HAND_WRITTEN.get(api_key) or request_class(api_key)()
                await client.send(request_frame(request, version, version + 1000))
                # Reads to the last byte, with the header that this version has.
                correlation_id, _ = read_answer(await client.receive_raw(), api_key, version)
                assert correlation_id == version + 1000, (api_key, version)
                await client.close()

    run(main())


@pytest.mark.parametrize("version", range(5))
def test_api_versions_announces_what_is_served(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            answer: ApiVersionsResponse = await client.ask(ApiVersionsRequest(), version)
            told = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
            assert told == list(ANNOUNCED)

    run(main())


def test_every_route_is_announced_and_known_to_the_protocol() -> None:
    assert {key for key, _, _ in ANNOUNCED} == set(ROUTES) | {0, 1, 18}
    for api_key, oldest, newest in ANNOUNCED:
        assert 0 <= oldest <= newest
        assert api_key in APIS


@pytest.mark.parametrize("api_key", [key for key, _, _ in ANNOUNCED if key not in HAND_WRITTEN])
def test_versions_that_are_announced_are_declared(api_key: int) -> None:
    declared = request_class(api_key).VERSIONS
    assert declared is not None
    [(oldest, newest)] = [(first, last) for key, first, last in ANNOUNCED if key == api_key]
    assert declared[0] <= oldest <= newest <= declared[1]


@pytest.mark.parametrize("api_key", [key for key, _, _ in ANNOUNCED])
def test_name_of_an_api_is_kafkas(api_key: int) -> None:
    assert APIS[api_key].module.rpartition(".")[2] == api_key_map[api_key]
