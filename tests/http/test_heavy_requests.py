"""Requests that are small for who sends them and a lot of work, or memory, for the broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.broker.groups import GroupCoordinator
from millstream.broker.memory_budget import HTTP_BODIES
from tests.clients.broker_process import BrokerProcess
from tests.fakes.open_door import run, until
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import StreamingDoor, streaming_door

pytestmark = pytest.mark.system

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
BYTES = {"content-type": "application/octet-stream"}
DEEP = b"[" * 1000 + b"]" * 1000


def test_json_of_too_many_parts_is_refused(web: httpx.Client, name: str) -> None:
    body = b'{"value":[' + b"[]," * 70_000 + b"1]}"
    answer = web.post(f"/topics/{name}/messages", content=body, headers=JSON)
    assert answer.status_code == 422
    assert "60000" in answer.json()["detail"]
    answer = web.post(f"/topics/{name}/messages", content=b"{}\n" + body, headers=LINES)
    assert answer.status_code == 422
    assert web.get(f"/topics/{name}").status_code == 404


def test_name_of_the_topic_is_looked_at_before_a_large_body(web: httpx.Client) -> None:
    answer = web.post("/topics/bad%20name/messages", content=b"{" * 100_000, headers=JSON)
    assert answer.status_code == 422
    assert "bad name" in answer.json()["detail"]


def test_administration_takes_no_endless_lists(web: httpx.Client, name: str) -> None:
    web.post(f"/topics/{name}/messages", json={"value": "x"})
    offsets = [{"topic": name, "offset": 0}] * 1001
    answer = web.post(f"/groups/{name}/offsets", json={"offsets": offsets})
    assert answer.status_code == 422
    assert "1000" in answer.json()["detail"]
    assert web.post(f"/groups/{name}/offsets", json={"offsets": offsets[1:]}).status_code == 200
    many = {"settings": {f"a{n}": 1 for n in range(70_000)}}
    answer = web.patch(f"/topics/{name}", json=many)
    assert answer.status_code == 422
    assert "60000" in answer.json()["detail"]
    answer = web.patch(f"/topics/{name}", content=b" " * (1 << 20) + b"{}", headers=JSON)
    assert answer.status_code == 413
    assert "http.request.max.bytes" not in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"value":%b}',
        b'{"data":%b}',
        b'{"value":"a","key":%b}',
        b'{"value":"a","headers":%b}',
        b'{"value":"a","headers":{"h":%b}}',
        b'{"value":"a","timestamp":%b}',
        b'{"value":"a","encoding":%b}',
        b'{"value":"a","more":%b}',
        b"%b",
        b'{"value":[123456789012345678901,%b]}',
    ],
)
def test_what_is_nested_deeply_is_refused(web: httpx.Client, name: str, body: bytes) -> None:
    message = body % DEEP
    for content in (message, b'[{"value":"x"},%b]' % message):
        answer = web.post(f"/topics/{name}/messages", content=content, headers=JSON)
        assert answer.status_code in {400, 422}, answer.text
    lines = b'{"value":"x"}\n' + message
    answer = web.post(f"/topics/{name}/messages", content=lines, headers=LINES)
    assert answer.status_code in {400, 422}
    assert (answer.json()["line"], answer.json()["stored"]["count"]) == (2, 1)


def test_routes_that_are_checked_by_models_refuse_deep_bodies(web: httpx.Client) -> None:
    for path, body in (
        ("/topics", b'{"name":%b}'),
        ("/topics/t/subscriptions/s/ack", b'{"message_ids":%b}'),
    ):
        answer = web.post(path, content=body % DEEP, headers=JSON)
        assert answer.status_code in {400, 422}


def test_deep_frames_are_answered_and_the_connection_stays(tmp_path: Path) -> None:
    async def main() -> None:
        deep: Any = json.loads(DEEP[500:1500])
        async with streaming_door(tmp_path) as door, door.client() as client:
            for members in ({"value": deep}, {"value": "a", "key": deep}, {"topic": deep}):
                error = await client.error("send", **{"topic": "t", **members})
                assert error["status"] == 422
            await client.say(id=deep, op=deep)
            assert (await client.hear())["error"]["status"] == 422
            assert (await client.result("ping"))["time"] > 0

    run(main())


def test_big_number_is_kept(web: httpx.Client, name: str) -> None:
    value = '{"id":123456789012345678901}'
    web.post(f"/topics/{name}/messages", content=f'{{"value":{value}}}', headers=JSON)
    web.post(f"/topics/{name}/messages", content=f'{{"value":{value}}}\n', headers=LINES)
    found = web.get(f"/topics/{name}/messages", params={"offset": 0}).json()["messages"]
    assert [each["value"] for each in found] == [value, value]


def test_key_in_a_header_is_taken_as_its_bytes(web: httpx.Client, name: str) -> None:
    raw = b"application/octet-stream"
    headers = {b"content-type": raw, b"millstream-key": "zoë".encode()}
    web.post(f"/topics/{name}/messages", content=b"x", headers=headers)
    found = web.get(f"/topics/{name}/messages", params={"offset": 0}).json()["messages"]
    assert found[0]["key"] == "zoë"


@pytest.mark.parametrize("kind", [JSON, LINES, BYTES])
def test_compressed_body_is_refused(web: httpx.Client, name: str, kind: dict[str, str]) -> None:
    headers = {**kind, "content-encoding": "gzip"}
    answer = web.post(f"/topics/{name}/messages", content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 415
    assert "gzip" in answer.json()["detail"]
    assert web.post("/topics", content=b"\x1f\x8b", headers=headers).status_code == 415
    plain = {**BYTES, "content-encoding": "identity"}
    assert web.post(f"/topics/{name}/messages", content=b"x", headers=plain).status_code == 200


def test_large_answer_is_whole(web: httpx.Client, name: str) -> None:
    lines = b"".join(b'{"value":"%05d%b"}\n' % (n, b"x" * 100_000) for n in range(35))
    assert web.post(f"/topics/{name}/messages", content=lines, headers=LINES).status_code == 200
    query = {"offset": 0, "max_bytes": 16 << 20}
    answer = web.get(f"/topics/{name}/messages", params=query).json()
    assert [each["offset"] for each in answer["messages"]] == list(range(35))
    assert (answer["topic"], answer["next_offset"], answer["end_offset"]) == (name, 35, 35)
    answer = web.get(f"/topics/{name}/messages", params={**query, "limit": 20}).json()
    assert (len(answer["messages"]), answer["next_offset"]) == (20, 20)


async def begin_a_body(door: StreamingDoor, announced: int, body: bytes, kind: bytes) -> Any:
    host, _, port = door.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (kind, announced, body)
    )
    return reader, writer


def test_stalled_bodies_wait_for_room_and_are_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        limits = {"request_max_bytes": 600_000, "body_timeout_s": 3}
        async with streaming_door(tmp_path, memory_bytes=1_200_000, **limits) as door:
            async with httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web:
                # The first request takes long: it loads the code that serves it.
                assert (await web.post("/topics/t/messages", json={"value": "x"})).is_success
            some = b"x" * 500_000
            raw = b"application/octet-stream"
            stalled = [await begin_a_body(door, 600_000, some, raw) for _ in range(3)]
            stalled.append(await begin_a_body(door, 600_000, some, b"application/x-ndjson"))
            stalled.append(await begin_a_body(door, 100, b"x", raw))
            # Small ones have room as ever.
            async with httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web:
                assert (await web.post("/topics/t/messages", json={"value": "x"})).is_success
            await until(lambda: door.broker.memory.used[HTTP_BODIES] == 1_200_000)
            statuses = []
            for reader, writer in stalled:
                head = (await reader.read()).partition(b"\r\n\r\n")[0]
                assert b"connection: close" in head or b" 503 " in head
                statuses.append(int(head.split()[1]))
                writer.close()
            assert set(statuses) <= {408, 503}
            assert statuses[0] == statuses[-1] == 408
            await until(lambda: not door.broker.memory.used_bytes)

    run(main())


def test_lines_may_pause_and_are_stored_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path, body_timeout_s=1) as door:
            line = b'{"value":"x"}\n'
            reader, writer = await begin_a_body(door, 28, line, b"application/x-ndjson")
            await until(lambda: any(each.name == "t" for each in door.broker.topics.all()))
            await asyncio.sleep(1.3)
            writer.write(line)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head
            writer.close()

    run(main())


def test_lines_end_with_their_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door:
            line = b'{"value":"x"}\n'
            reader, writer = await begin_a_body(door, 42, line, b"application/x-ndjson")
            await until(lambda: any(each.name == "t" for each in door.broker.topics.all()), "topic")
            log = door.broker.topics.get("t").partitions[0].log
            await until(lambda: log.synced_offset == 1, "the first line on disk")
            # The first line is done with when the second one is taken.
            writer.write(line)
            await until(lambda: log.synced_offset == 2, "the second line on disk")
            await door.broker.topics.delete("t")
            writer.write(line)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 404 " in head
            size = int(head.lower().partition(b"content-length:")[2].split()[0])
            told = json.loads(await reader.readexactly(size))
            assert (told["line"], told["stored"]["count"]) == (3, 2)
            assert not any(each.name == "t" for each in door.broker.topics.all())
            writer.close()

    run(main())


def test_reading_at_a_cursor_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with (
            streaming_door(tmp_path) as door,
            httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web,
        ):
            await web.post("/topics/t/messages", json=[{"data": "a"}, {"data": "b"}])
            await web.post("/topics/t/messages/0/ack", params={"consumer_id": "c"})
            key = ("t", 0)
            first = (await door.broker.groups.fetch_offsets("c"))[key]
            # It is fresh: nothing is written.
            read = await web.get("/topics/t/messages", params={"consumer_id": "c"})
            assert read.json()["data"] == "b"
            assert (await door.broker.groups.fetch_offsets("c"))[key] == first
            # As if the time for which it is kept were almost over.
            monkeypatch.setattr(GroupCoordinator, "offsets_retention_ms", property(lambda _: 0))
            await asyncio.sleep(0.002)
            await web.get("/topics/t/messages", params={"consumer_id": "c"})
            kept = (await door.broker.groups.fetch_offsets("c"))[key]
            assert kept.offset == first.offset == 1
            assert kept.commit_timestamp_ms > first.commit_timestamp_ms

    run(main())


def test_topics_of_the_seeds_routes_have_one_partition(tmp_path: Path) -> None:
    settings = "[topics]\nnum.partitions = 3\n"
    with (
        BrokerProcess(tmp_path, settings=settings, http="127.0.0.1:0") as broker,
        httpx.Client(base_url=broker.url, timeout=HANG_S) as web,
    ):
        for number in range(3):
            told = web.post("/topics/fast", json={"message": f"m{number}"}).json()
            assert told["offset"] == number
            assert web.get("/topics/fast", params={"offset": number}).json()["offset"] == number
        read = web.get("/topics/fast/messages", params={"offset": 0, "limit": 10}).json()
        assert len(read["messages"]) == 3
        sent = [web.post("/topics/mini/messages", json={"data": "x"}).json() for _ in range(3)]
        assert [each["message_id"] for each in sent] == [0, 1, 2]
        line = b'{"message":"x"}\n'
        assert web.post("/topics/lines/messages", content=line, headers=LINES).is_success
        web.post("/topics/ours/messages", json={"value": "x"})
        counts = {each["name"]: each["partitions"] for each in web.get("/topics").json()["topics"]}
        assert counts == {"fast": 1, "mini": 1, "lines": 1, "ours": 3}
        broker.stop()
