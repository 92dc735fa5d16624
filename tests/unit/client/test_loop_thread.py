"""An event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream.client.loop_thread import LoopThread
from millstream.errors import ClientClosed
from tests.fakes.patience import HANG_S


def test_result_and_error_come_back_to_the_caller() -> None:
    thread = LoopThread()

    async def work(value: int) -> int:
        await asyncio.sleep(0)
        if value < 0:
            raise ValueError(value)
        return value + 1

    assert thread.call(work(1)) == 2
    with pytest.raises(ValueError, match="-1"):
        thread.call(work(-1))
    thread.close()


def test_close_ends_what_runs_and_refuses_what_comes() -> None:
    thread = LoopThread()
    begun = threading.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: thread.call(wait()))
        begun.wait()
        thread.close()
        thread.close()
        with pytest.raises(ClientClosed):
            waiting.result(timeout=HANG_S)
    with pytest.raises(ClientClosed):
        thread.call(wait())
    assert thread.is_closed


def test_call_from_within_is_refused_as_it_would_wait_for_itself() -> None:
    thread = LoopThread()

    async def inner() -> None:
        raise AssertionError("never run")

    async def outer() -> None:
        thread.call(inner())

    with pytest.raises(RuntimeError, match="its own event loop"):
        thread.call(outer())
    thread.close()
