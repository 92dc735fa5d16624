"""Messages that were read and that nobody has yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.records import Record
from millstream.subscriptions.ready_messages import ReadyMessages, size_bytes


def record(offset: int, key: bytes = b"", value: bytes = b"") -> Record:
    return Record(offset, 0, key, value)


def offsets(ready: ReadyMessages, lane: int = 0) -> list[int]:
    return [each.offset for each in ready.lane(lane) or ()]


def test_older_ones_are_sorted_in() -> None:
    ready = ReadyMessages(None)
    for offset in (5, 6, 9):
        ready.append(record(offset))
    ready.merge([record(1), record(2)])
    assert offsets(ready) == [1, 2, 5, 6, 9]
    ready.merge([record(0), record(7), record(8)])
    assert offsets(ready) == [0, 1, 2, 5, 6, 7, 8, 9]
    assert (ready.count, ready.last_offset) == (8, 9)


def test_newest_are_given_up_from_whatever_lane() -> None:
    ready = ReadyMessages(lambda key: int(key or b"0"))
    for offset, key in enumerate((b"1", b"2", b"1", b"1", b"2")):
        ready.append(record(offset, key))
    assert ready.trim(2, 1 << 20) == [4, 3, 2]
    assert (offsets(ready, 1), offsets(ready, 2), ready.last_offset) == ([0], [1], 1)


def test_one_is_kept_however_large_it_is() -> None:
    ready = ReadyMessages(None)
    ready.append(record(0, value=b"x" * 1000))
    ready.append(record(1))
    assert ready.trim(10, 50) == [1]
    assert offsets(ready) == [0]


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 50), max_size=10), st.integers(0, 5)), max_size=20)
)
def test_count_size_and_order_are_right_whatever_happens(steps: list[tuple[set[int], int]]) -> None:
    ready = ReadyMessages(lambda key: len(key or b"") % 3)
    held: dict[int, Record] = {}
    for coming, taken in steps:
        new = [record(at, b"k" * (at % 7), b"v" * at) for at in sorted(coming - held.keys())]
        ready.merge(new)
        held.update((each.offset, each) for each in new)
        lane = ready.lane(taken % 3)
        if lane:
            oldest = lane[0]
            assert ready.pop(lane) == size_bytes(held.pop(oldest.offset))
        if taken == 4:
            ready.rearrange()
        if taken == 5:
            for offset in ready.trim(5, 1 << 20):
                del held[offset]
        in_lanes = [offsets(ready, number) for number in range(3)]
        assert all(each == sorted(each) for each in in_lanes)
        assert sorted(at for each in in_lanes for at in each) == sorted(held)
        assert ready.count == len(held)
        assert ready.size_bytes == sum(map(size_bytes, held.values()))
    assert sorted(ready.clear()) == sorted(held)
    assert (ready.count, ready.size_bytes, ready.last_offset) == (0, 0, -1)
