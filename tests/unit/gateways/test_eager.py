"""Coroutines that begin at once, and go on as tasks only if they have to wait."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from millstream.gateways.kafka.eager import run_eagerly


def test_coroutine_that_never_waits_ends_at_once_without_a_task() -> None:
    async def answer() -> int:
        return 7

    async def main() -> None:
        assert run_eagerly(answer()) == (7, None)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_error_before_the_first_wait_is_raised_at_once() -> None:
    async def fail() -> NoReturn:
        raise KeyError("now")

    async def main() -> None:
        with pytest.raises(KeyError, match="now"):
            run_eagerly(fail())

    asyncio.run(main())


def test_coroutine_that_waits_goes_on_as_a_task() -> None:
    async def main() -> None:
        begun: list[str] = []
        gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def wait_twice() -> int:
            begun.append("first")
            first = await gate
            await asyncio.sleep(0)
            return first + 1

        result, task = run_eagerly(wait_twice())
        assert begun == ["first"], "what comes before the wait has happened"
        assert result is None
        assert task is not None
        gate.set_result(41)
        assert await task == 42

    asyncio.run(main())


def test_error_of_what_is_waited_for_reaches_the_coroutine() -> None:
    async def main() -> None:
        gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def forgive() -> str:
            try:
                await gate
            except KeyError:
                return "forgiven"
            return "no error came"

        _, task = run_eagerly(forgive())
        assert task is not None
        gate.set_exception(KeyError("later"))
        assert await task == "forgiven"

    asyncio.run(main())


def test_cancelled_task_cancels_the_coroutine() -> None:
    async def main() -> None:
        heard: list[str] = []

        async def wait() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                heard.append("cancelled")
                raise

        _, task = run_eagerly(wait())
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert heard == ["cancelled"]

    asyncio.run(main())


def test_error_after_the_wait_is_the_tasks() -> None:
    async def main() -> None:
        async def fail() -> NoReturn:
            await asyncio.sleep(0)
            raise KeyError("later")

        _, task = run_eagerly(fail())
        assert task is not None
        with pytest.raises(KeyError, match="later"):
            await task

    asyncio.run(main())
