"""Frames of nonsense: each is answered, and the broker neither fails nor complains."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.gateways.http.socket_operations import OPERATIONS
from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run
from tests.fakes.streaming_door import SocketClient, socket_client

pytestmark = pytest.mark.system

_FRAMES = 3000
_NAMES = (
    "topic",
    "name",
    "type",
    "from",
    "to",
    "group",
    "partition",
    "partitions",
    "prefetch",
    "create",
    "subscription",
    "ids",
    "messages",
    "value",
    "key",
    "headers",
    "encoding",
    "timestamp",
    "deliver_after",
    "delay_ms",
    "timeout_ms",
    "reason",
    "limit",
    "offset",
    "settings",
    "max_deliveries",
    "ack_timeout_ms",
    "consumer",
    "dead_letter_topic",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    1.5,
    "",
    "t",
    "s",
    "0:0",
    "9:9",
    "__catalog",
    "../x",
    "earliest",
    "base64",
    "shared",
    "failover",
    "\x00",
    "é" * 300,
    [],
    ["0:0"],
    [0],
    [None],
    [{"value": "x"}],
    {},
    {"value": "x"},
    {"timestamp": 0},
    {"positions": {"0": 0}},
    {"positions": {"x": 2**70}},
    {"retention.ms": "1"},
    {"a": {"base64": "!"}},
)


def _nonsense(chance: random.Random, number: int) -> dict[str, Any]:
    frame: dict[str, Any] = {"id": number, "op": chance.choice([*OPERATIONS, "nope", None, 5])}
    if chance.random() < 0.8:
        frame |= {"topic": "t", "subscription": "s", "name": "q"}
    for name in chance.sample(_NAMES, chance.randrange(6)):
        frame[name] = chance.choice(_VALUES)
    return frame


async def _answers(client: SocketClient, wanted: set[int]) -> None:
    while wanted:
        frame = await client.hear()
        if "id" in frame:
            wanted.discard(frame["id"])
            assert frame.get("error", {}).get("status", 200) < 500, frame


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), http="127.0.0.1:0") as broker:
        yield broker
        broker.stop()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nonsense_is_answered_and_breaks_nothing(broker: BrokerProcess, seed: int) -> None:
    async def main() -> None:
        chance = random.Random(seed)
        async with socket_client(f"127.0.0.1:{broker.http_port}") as client:
            await client.say(id="s", op="subscribe", topic="t", create=True)
            for start in range(0, _FRAMES, 100):
                for number in range(start, start + 100):
                    await client.say(**_nonsense(chance, number))
                await _answers(client, set(range(start, start + 100)))

    run(main())
    assert broker.complaints() == []
