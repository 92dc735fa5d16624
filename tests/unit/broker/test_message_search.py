"""A search finds what a look at every record finds, forward and backward, whatever the slices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.message_search import Room, Searches, Slice, Wanted, may_hold, size_of
from millstream.broker.reading import Reader
from millstream.broker.sending import NewRecord
from millstream.records import Codec, Record
from tests.fakes.examples import examples
from tests.fakes.open_door import run_plainly as run
from tests.fakes.sample_batches import (
    abort_marker,
    batch_of,
    commit_marker,
)
from tests.fakes.transaction_home import TransactionHome

LIMIT_BYTES = 1 << 20
READER = Reader(max_unpacked_bytes=LIMIT_BYTES)

small = st.binary(max_size=3)
records = st.builds(
    NewRecord,
    value=st.none() | st.sampled_from([b"", b"Grain", b"a grain of", b"flour", b"\xff\x00"]),
    key=st.none() | st.sampled_from([b"rye", b"RYE", b"oats"]),
    timestamp_ms=st.none(),
    partition=st.none(),
    headers=st.lists(st.tuples(st.sampled_from(["grain", "x"]), st.none() | small), max_size=1).map(
        tuple
    ),
)


async def everything(
    home: TransactionHome,
    wanted: Wanted,
    *,
    limit: int,
    is_backward: bool,
    size_bytes: int = LIMIT_BYTES,
) -> list[Record]:
    """All that is found, slice by slice."""
    searches = Searches(max_unpacked_bytes=LIMIT_BYTES)
    partition = home.partition("t", 0)
    offset = partition.log.last_stable_offset if is_backward else 0
    found: list[Record] = []
    while True:
        piece: Slice = await searches.search(
            partition,
            wanted,
            offset,
            room=Room(limit, size_bytes),
            within_s=0,
            is_backward=is_backward,
        )
        assert len(piece.records) <= limit
        # The last one may be larger than what room is left.
        assert sum(map(size_of, piece.records[:-1])) <= size_bytes
        found += piece.records
        if piece.is_over:
            return found
        assert piece.offset != offset, "it goes on"
        offset = piece.offset


@settings(max_examples=examples(40))
@given(
    batches=st.lists(st.lists(records, min_size=1, max_size=8), max_size=5),
    wanted=st.builds(
        Wanted,
        text=st.sampled_from([b"", b"GRAIN", b"ain o", b"\xff", b"nothing"]),
        key=st.sampled_from([b"", b"rye"]),
    ),
    limit=st.integers(1, 7),
    size_bytes=st.integers(1, 30),
)
def test_search_agrees_with_a_look_at_every_record(
    batches: list[list[NewRecord]], wanted: Wanted, limit: int, size_bytes: int
) -> None:
    async def main() -> None:
        home = await TransactionHome().start()
        await home.topics.create("t", partitions=1, overrides={})
        sender = home.broker.sender
        for each in batches:
            await sender.send_many("t", each)
        whole = READER.read(home.partition("t", 0), 0, limit=1000).records
        expected = [record for record in whole if plainly_matches(wanted, record)]
        for is_backward in (False, True):
            found = await everything(
                home, wanted, limit=limit, is_backward=is_backward, size_bytes=size_bytes
            )
            assert found == (expected[::-1] if is_backward else expected)

    run(main())


def plainly_matches(wanted: Wanted, record: Record) -> bool:
    parts = [record.value or b"", record.key or b""]
    for name, value in record.headers:
        parts += [name.encode(), value or b""]
    has_text = any(wanted.text.upper() in part.upper() for part in parts)
    return has_text and (not wanted.key or record.key == wanted.key)


def transactional(value: str, sequence: int) -> bytearray:
    return batch_of(value.encode(), producer_id=7, epoch=0, sequence=sequence, transactional=True)


def test_compressed_batches_and_aborted_transactions_are_seen_through() -> None:
    async def main() -> None:
        home = await TransactionHome().start()
        await home.topics.create("t", partitions=1, overrides={})
        log = home.partition("t", 0).log
        log.append([batch_of(b"grain 0", b"chaff", codec=Codec.ZSTD)])
        log.append([transactional("grain 2", 0)])
        log.append([abort_marker()])
        log.append([transactional("grain 4", 1)])
        log.append([commit_marker()])
        log.append([transactional("grain 6", 2)])
        found = await everything(home, Wanted(b"grain"), limit=9, is_backward=False)
        assert [each.value for each in found] == [b"grain 0", b"grain 4"]
        assert found[::-1] == await everything(home, Wanted(b"grain"), limit=1, is_backward=True)

    run(main())


@pytest.mark.parametrize("is_backward", [False, True])
def test_search_that_nobody_waits_for_reads_nothing(*, is_backward: bool) -> None:
    async def main() -> None:
        home = await TransactionHome().start()
        await home.topics.create("t", partitions=1, overrides={})
        partition = home.partition("t", 0)
        partition.log.append([batch_of(b"grain")])

        async def yes() -> bool:
            return True

        found = await Searches(max_unpacked_bytes=LIMIT_BYTES).search(
            partition,
            Wanted(b"grain"),
            1 if is_backward else 0,
            room=Room(9, LIMIT_BYTES),
            within_s=1,
            is_backward=is_backward,
            is_abandoned=yes,
        )
        assert (found.records, found.is_over) == ([], True)

    run(main())


WINDOW = 256 * 1024


@pytest.mark.parametrize("at", [0, WINDOW - 3, WINDOW, 600_000])
def test_text_is_found_across_the_edges_of_windows(at: int) -> None:
    body = bytearray(700_000)
    body[at : at + 6] = b"NEEDLE"
    parts = [bytes(body[n : n + WINDOW]) for n in range(0, len(body), WINDOW)]
    assert may_hold(parts, b"needle")
    assert not may_hold(parts, b"needles")
