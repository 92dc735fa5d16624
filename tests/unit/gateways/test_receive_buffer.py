"""Where connections receive into: one buffer for all, and their own for requests in pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.memory_budget import KAFKA_REQUESTS, MemoryBudget
from millstream.gateways.receive_buffer import SHARED_BYTES, BufferPool, ReceiveBuffer

STEP = 64 * 1024


def pool_of(limit_bytes: int) -> BufferPool:
    return BufferPool(MemoryBudget(limit_bytes), KAFKA_REQUESTS)


def receive(buffer: ReceiveBuffer, data: bytes) -> None:
    space = buffer.space()
    space[: len(data)] = data
    buffer.end += len(data)


def content(buffer: ReceiveBuffer) -> bytes:
    return bytes(buffer.view[buffer.start : buffer.end])


def test_whole_requests_need_no_memory() -> None:
    pool = pool_of(STEP)
    first, second = ReceiveBuffer(pool), ReceiveBuffer(pool)
    receive(first, b"request")
    first.start = first.end
    assert first.settle(4)
    assert first.space().obj is second.space().obj is pool.shared
    assert len(first.space()) == SHARED_BYTES


def test_piece_of_a_request_moves_to_a_buffer_of_its_own() -> None:
    pool = pool_of(4 * STEP)
    buffer, other = ReceiveBuffer(pool), ReceiveBuffer(pool)
    receive(buffer, b"done" + b"begun")
    buffer.start = 4
    assert buffer.settle(STEP + 1)
    receive(other, b"overwrites what was there")
    assert content(buffer) == b"begun"
    assert not pool.take(2 * STEP + 1), "memory for all of it is reserved"


def test_own_buffer_grows_as_bytes_arrive() -> None:
    pool = pool_of(1000 * STEP)
    buffer = ReceiveBuffer(pool)
    total, sent = 100 * STEP, bytes(range(256)) * 64
    received = bytearray()
    sizes = set()
    while len(received) < total - len(sent):
        for start in range(0, len(sent), 5000):
            piece = sent[start : start + min(5000, len(buffer.space()))]
            receive(buffer, piece)
            received += piece
            assert buffer.settle(total)
            assert len(buffer.space()) > 0
            assert len(buffer.view) <= max(STEP, 3 * len(received)), "no more than is sent"
            sizes.add(len(buffer.view))
    assert content(buffer) == received
    assert len(sizes) < 10, "it is not copied for every piece"


def test_own_buffer_is_kept_for_the_next_request() -> None:
    pool = pool_of(STEP)
    buffer = ReceiveBuffer(pool)
    receive(buffer, b"a")
    assert buffer.settle(10)
    own = buffer.raw
    buffer.start = buffer.end
    assert buffer.settle(4)
    assert buffer.raw is own
    buffer.release()
    assert buffer.raw is pool.shared
    assert pool.take(STEP)


@pytest.mark.parametrize("left", [1, 2, 3])
def test_beginning_of_a_size_at_the_very_end_of_a_buffer_leaves_room_for_the_rest(
    left: int,
) -> None:
    buffer = ReceiveBuffer(pool_of(STEP))
    receive(buffer, b"x")
    assert buffer.settle(10)
    receive(buffer, bytes(STEP - 1))
    assert len(buffer.space()) == 0
    buffer.start = buffer.end - left
    assert buffer.settle(4)
    assert len(buffer.space()) == STEP - left


def test_request_for_which_there_is_no_memory_waits_and_keeps_what_it_has() -> None:
    pool = pool_of(STEP)
    holder, waiter = ReceiveBuffer(pool), ReceiveBuffer(pool)
    receive(holder, b"held")
    assert holder.settle(10)
    receive(waiter, b"waits")
    assert not waiter.settle(10)
    receive(ReceiveBuffer(pool), b"in the shared buffer")
    assert content(waiter) == b"waits"

    tries: list[bool] = []
    pool.wait(lambda: tries.append(waiter.settle(10)))
    assert pool.is_tight
    holder.close()
    assert tries == [True]
    assert not pool.waiting
    assert content(waiter) == b"waits"


def test_memory_that_is_only_kept_is_taken_by_who_needs_it() -> None:
    pool = pool_of(STEP)
    idle, busy = ReceiveBuffer(pool), ReceiveBuffer(pool)
    receive(idle, b"a")
    assert idle.settle(10)
    idle.start = idle.end
    assert idle.settle(4)
    receive(busy, b"b")
    assert busy.settle(10)
    assert idle.raw is pool.shared
    assert not pool.take(1)


def test_who_waits_twice_is_called_once_and_in_order() -> None:
    pool = pool_of(STEP)
    assert pool.take(STEP)
    called: list[str] = []

    def waiter(name: str) -> Callable[[], None]:
        return lambda: called.append(name)

    first, second, gone = waiter("first"), waiter("second"), waiter("gone")
    for each in (first, gone, second, first):
        pool.wait(each)
    pool.leave(gone)
    pool.give_back(STEP)
    assert called == ["first", "second"]


def test_nobody_is_called_when_nothing_is_left_to_be_had() -> None:
    pool = pool_of(2 * STEP)
    assert pool.take(2 * STEP)
    called: list[str] = []

    def greedy() -> None:
        assert pool.take(STEP)
        called.append("greedy")

    pool.wait(greedy)
    pool.wait(lambda: called.append("second"))
    pool.give_back(STEP)
    assert called == ["greedy"]
    assert pool.is_tight
    pool.give_back(STEP)
    assert called == ["greedy", "second"]


def test_while_others_wait_little_is_received_at_once() -> None:
    pool = pool_of(STEP)
    pool.wait(lambda: None)
    assert len(ReceiveBuffer(pool).space()) == 4096


def test_only_a_buffer_with_something_in_it_hoards() -> None:
    buffer = ReceiveBuffer(pool_of(STEP))
    receive(buffer, b"a")
    assert buffer.settle(10)
    assert buffer.is_hoarding
    buffer.start = buffer.end
    assert buffer.settle(4)
    assert not buffer.is_hoarding


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3 * STEP)), max_size=40))
def test_pool_never_gives_more_than_it_has_and_gets_all_back(
    steps: list[tuple[int, int]],
) -> None:
    limit = 6 * STEP
    pool = pool_of(limit)
    buffers = [ReceiveBuffer(pool) for _ in range(4)]
    for number, size in steps:
        buffer = buffers[number]
        if buffer.start < buffer.end:
            buffer.start = buffer.end
            assert buffer.settle(4)
        else:
            receive(buffer, b"x")
            if not buffer.settle(size):
                assert content(buffer) == b"x"
                buffer.close()
        assert sum(each._own_bytes for each in buffers) == pool.used_bytes <= limit
    for buffer in buffers:
        buffer.close()
    assert pool.take(limit)
