"""Records that are read one by one, with what does not count left out."""

from __future__ import annotations

import asyncio

import pytest

from millstream.broker.reading import Reader
from millstream.broker.sending import NewRecord
from millstream.errors import OffsetOutOfRange
from millstream.records import Codec, Record, build
from tests.fakes.transaction_home import TransactionHome

READER = Reader(max_unpacked_bytes=1 << 20)


async def home_with_records(count: int) -> TransactionHome:
    home = await TransactionHome().start()
    await home.topics.create("t", partitions=1, overrides={})
    sender = home.broker.sender
    for first in range(0, count, 10):
        await sender.send_many("t", [NewRecord(b"%d" % n) for n in range(first, first + 10)])
    return home


def test_page_has_as_many_as_wanted_and_says_where_the_next_begins() -> None:
    async def main() -> None:
        home = await home_with_records(30)
        partition = home.partition("t", 0)
        offset, seen = 0, []
        while True:
            page = READER.read(partition, offset, limit=7)
            assert len(page.records) <= 7
            assert (page.start_offset, page.end_offset) == (0, 30)
            if not page.records:
                break
            seen += [record.value for record in page.records]
            offset = page.next_offset
        assert seen == [b"%d" % n for n in range(30)]
        with pytest.raises(OffsetOutOfRange):
            READER.read(partition, 31, limit=1)

    asyncio.run(main())


def test_only_committed_records_are_read_unless_all_are_wanted() -> None:
    async def main() -> None:
        home = await home_with_records(10)
        writer = await home.writer()
        for number, is_commit in enumerate([True, False, True]):
            home.write(writer, "t", 0, b"in %d" % number)
            await home.end(writer, is_commit=is_commit)
        home.write(writer, "t", 0, b"open")
        partition = home.partition("t", 0)
        page = READER.read(partition, 10, limit=100)
        assert [record.value for record in page.records] == [b"in 0", b"in 2"]
        assert page.next_offset == page.end_offset == 16
        page = READER.read(partition, 10, limit=100, is_committed=False)
        assert [r.value for r in page.records] == [b"in 0", b"in 1", b"in 2", b"open"]
        assert page.end_offset == 17

    asyncio.run(main())


def test_reader_waits_until_there_is_more() -> None:
    async def main() -> None:
        home = await home_with_records(10)
        partition = home.partition("t", 0)
        await READER.wait(partition, 9, timeout_ms=60_000)
        await READER.wait(partition, 10, timeout_ms=0)
        waiting = asyncio.create_task(READER.wait(partition, 10, timeout_ms=60_000))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        sender = home.broker.sender
        await sender.send("t", NewRecord(b"more"))
        await waiting
        await READER.wait(partition, 11, timeout_ms=5)
        assert not partition.waiters

    asyncio.run(main())


def test_page_is_bounded_in_bytes_and_goes_on_within_a_batch() -> None:
    async def main() -> None:
        home = await home_with_records(0)
        partition = home.partition("t", 0)
        records = [Record(n, 1, None, b"%03d" % n * 1000) for n in range(40)]
        partition.log.append([build(records, codec=Codec.ZSTD)])
        offset, sizes, seen = 0, [], []
        while offset < 40:
            page = READER.read(partition, offset, limit=1000, max_bytes=10_000)
            sizes.append(len(page.records))
            seen += [record.value for record in page.records]
            offset = page.next_offset
        assert seen == [record.value for record in records]
        assert set(sizes) == {4}
        [last] = READER.read(partition, 39, limit=1000, max_bytes=1).records
        assert last.offset == 39

    asyncio.run(main())
