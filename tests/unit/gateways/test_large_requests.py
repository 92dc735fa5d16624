"""Requests that list much: refused past a limit, and else done in slices, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.gateways.kafka.admission import SMALL_BYTES, Admission, Pace, gather_slices
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.apis import response_class
from millstream.protocol.codec import encode, encode_slices
from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millstream.settings.kafka import KafkaSettings
from millstream.settings.loader import Settings
from millstream.settings.topics import TopicSettings
from tests.fakes.open_door import open_door, run
from tests.hostile.full_requests import FullArray, full_arrays

LIMIT = 1000
MANY = 5000


def _tells_errors(array: FullArray) -> bool:
    code = response_class(array.api_key).FIELDS.get("error_code")
    return code is not None and code.exists_in(array.version)


def test_request_over_the_limit_gets_an_error_or_loses_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_door(tmp_path, request_max_elements=LIMIT) as opened:
            for array in full_arrays():
                caplog.clear()
                # It limits the lines of a kind, and they are to be seen for each request.
                opened.broker.client_log.close()
                client = await opened.connect()
                request = array.request(LIMIT + 1)
                if _tells_errors(array):
                    answer = await client.ask(request, array.version)
                    assert answer.error_code == ErrorCode.INVALID_REQUEST, str(array)
                else:
                    await client.begin(request, array.version)
                    assert await client.ended() == b"", str(array)
                assert "raise millstream.request.max.elements" in caplog.text, str(array)
                await client.close()

    run(main())


class _Turns:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


# What is looked up in, not gone through.
_FILTERS = {
    "states_filter",
    "types_filter",
    "state_filters",
    "producer_id_filters",
    "configuration_keys",
    "configs",
    "assignments",
    "broker_ids",
    "members",
    "replicas",
    "resource_types",
}


_DESCRIBE_LOG_DIRS = 35


def _is_quick(array: FullArray) -> bool:
    """Whether its elements only choose among others."""
    name = array.path[-1]
    return name in _FILTERS or (array.api_key == _DESCRIBE_LOG_DIRS and name == "partitions")


# Groups and transactions take what they are told as one step.
_ONE_STEP = {11, 13, 14, 22, 68}
# What it lists is never there.
_IGNORED = {46}
# These do what each element asks for, side by side: the disk gives the others their turn.
_CREATING = {19}


def test_others_have_their_turn_while_a_large_request_is_at_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path, settings) as opened:
            client = await opened.connect()
            turns = _Turns()
            counting = asyncio.get_running_loop().create_task(turns.run())
            for array in full_arrays():
                if array.api_key in _CREATING | _ONE_STEP | _IGNORED or _is_quick(array):
                    continue
                quick = await _turns_of(client, array, 1, turns)
                slices = MANY // SMALL_BYTES - 1
                assert await _turns_of(client, array, MANY, turns) >= quick + slices, str(array)
            counting.cancel()

    settings = Settings(
        kafka=KafkaSettings(listener="127.0.0.1:0"), topics=TopicSettings(auto_create=False)
    )
    run(main())


async def _turns_of(client: Any, array: FullArray, count: int, turns: _Turns) -> int:
    before = turns.count
    await client.ask(array.request(count), array.version)
    return turns.count - before


def test_request_behind_a_large_one_is_begun_when_that_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            await opened.topic("t", partitions=MANY)
            client = await opened.connect()
            commit = OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(partition_index=n, committed_offset=7)
                            for n in range(MANY)
                        ],
                    )
                ],
            )
            wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0, MANY - 1])
            fetch = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])]
            )
            await client.begin(commit, 8)
            await client.begin(fetch, 8)
            committed, fetched = await client.receive(), await client.receive()
            assert {p.error_code for p in committed.topics[0].partitions} == {0}
            found = fetched.groups[0].topics[0].partitions
            assert [each.committed_offset for each in found] == [7, 7]

    run(main())


def test_group_that_is_named_many_times_is_described_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_door(tmp_path) as opened:
            client = await opened.connect()
            answer = await client.ask(DescribeGroupsRequest(groups=["g", "h", "g"] * 100), 5)
            assert [group.group_id for group in answer.groups] == ["g", "h"]

    run(main())


def test_slices_of_an_answer_are_its_bytes() -> None:
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(MANY)]
    request = MetadataRequest(topics=topics)
    for version in (0, 9, 12):
        slices = list(encode_slices(request, version))
        assert len(slices) > 1
        assert b"".join(slices) == encode(request, version)


class _Line:
    """Requests that want in, in the order in which they were."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.begun: list[str] = []

    def want(self, name: str, size: int) -> Callable[[], None]:
        def ask() -> None:
            if self._admission.admit(size, ask):
                self.begun.append(name)

        ask()
        return ask


def test_requests_of_one_turn_are_bounded_and_the_rest_come_in_order() -> None:
    async def main() -> None:
        line = _Line(Admission())
        for number in range(30):
            line.want(str(number), SMALL_BYTES)
        first = len(line.begun)
        assert first < 10
        await asyncio.sleep(0)
        assert first < len(line.begun) < 20
        for _ in range(5):
            await asyncio.sleep(0)
        assert line.begun == [str(number) for number in range(30)]

    asyncio.run(main())


def test_large_request_waits_for_others_of_its_kind_and_not_small_ones_for_it() -> None:
    async def main() -> None:
        admission = Admission()
        line = _Line(admission)
        large = 8 << 20
        line.want("first", large)
        await asyncio.sleep(0)
        line.want("second", large)
        line.want("small", 100)
        await asyncio.sleep(0)
        assert line.begun == ["first", "small"]
        admission.release(large)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert line.begun == ["first", "small", "second"]

    asyncio.run(main())


def test_connection_that_is_gone_is_asked_no_more() -> None:
    async def main() -> None:
        admission = Admission()
        line = _Line(admission)
        line.want("first", 8 << 20)
        await asyncio.sleep(0)
        waiting = line.want("gone", 8 << 20)
        admission.leave(waiting)
        assert admission.waiting == 0
        admission.release(8 << 20)
        await asyncio.sleep(0)
        assert line.begun == ["first"]

    asyncio.run(main())


def test_slices_of_work_keep_the_order_of_results() -> None:
    async def main() -> None:
        async def doubled(number: int) -> int:
            await asyncio.sleep(0)
            return 2 * number

        assert await gather_slices(doubled, range(1000)) == [2 * n for n in range(1000)]
        assert [n async for n in Pace().over(range(3000))] == list(range(3000))

    asyncio.run(main())
