"""Bytes that change on disk under a running broker, after they were proved: told, never served."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from millstream.records import Codec, Record, build
from tests.fakes.open_door import run
from tests.fakes.patience import HANG_S
from tests.fakes.streaming_door import streaming_door

BATCHES, EACH = 8, 5
HEAD_BYTES, EPOCH = 61, range(12, 16)


def test_flips_under_a_running_broker_are_told_with_their_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door:
            await door.topic("t")
            partition = door.broker.topics.partition("t", 0)
            sizes = []
            for number in range(BATCHES):
                first = number * EACH
                records = [Record(n, 1, b"k", b"value %d" % (first + n)) for n in range(EACH)]
                batch = build(records, base_offset=0, codec=list(Codec)[number % len(Codec)])
                sizes.append(len(batch))
                partition.log.append([batch])
            async with httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web:
                assert len(await _read(web, 0)) == BATCHES * EACH
                file = _record_file(tmp_path)
                for number in range(BATCHES):
                    for place in (*range(0, HEAD_BYTES, 7), sizes[number] - 2):
                        if place not in EPOCH:
                            await _check_flip(web, file, sum(sizes[:number]) + place, number * EACH)
                health = (await web.get("/health")).json()
            # A batch that was sound when it was proved is reported like any other.
            starts = {sum(sizes[:number]) for number in range(BATCHES)}
            assert starts <= {each.position for each in partition.log.report.damage}
            assert health["status"] == "degraded"
            assert f"{file.relative_to(tmp_path)}: bytes" in health["damage"][0]

    run(main())


def test_damage_that_a_search_meets_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with streaming_door(tmp_path) as door:
            await door.topic("t")
            log = door.broker.topics.partition("t", 0).log
            batch = build([Record(0, 1, None, b"value")], base_offset=0)
            log.append([batch])
            async with httpx.AsyncClient(base_url=door.url, timeout=HANG_S) as web:
                # Proved, and flipped then.
                assert len(await _read(web, 0)) == 1
                with _record_file(tmp_path).open("r+b") as opened:
                    opened.seek(len(batch) - 2)
                    opened.write(b"?")
                found = await web.get("/api/search", params={"topic": "t", "text": "value"})
                assert "offset 0 is damaged" in found.text
            assert len(log.report.damage) == 1

    run(main())


def _record_file(data: Path) -> Path:
    [found] = (path for path in data.rglob("*.log") if path.parent.parent.name == "t")
    return found


async def _check_flip(web: httpx.AsyncClient, file: Path, position: int, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        [byte] = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ 0x20]))
        opened.flush()
        try:
            await asyncio.sleep(0)
            found = await _read(web, offset)
            # Before the damage, and behind it where a batch was not found any more: as stored.
            assert all(each["value"] == f"value {each['offset']}" for each in found)
            assert not {each["offset"] for each in found} & set(range(offset, offset + EACH))
        finally:
            opened.seek(position)
            opened.write(bytes([byte]))
            opened.flush()


async def _read(web: httpx.AsyncClient, offset: int) -> list[dict[str, object]]:
    answer = await web.get("/topics/t/messages", params={"offset": offset, "limit": 1000})
    told = answer.json()
    if answer.status_code == 500:
        assert "offset" in told["detail"], told
        return []
    assert answer.status_code == 200, told
    messages: list[dict[str, object]] = told["messages"]
    return messages
