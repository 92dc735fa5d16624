"""Runs a coroutine at once, up to where it first has to wait, and the rest of it as a task.

Most handlers never wait: they cost no task and no turn of the event loop, and what requests do
happens in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def run_eagerly(
    work: Coroutine[Any, Any, _Result],
) -> tuple[_Result | None, asyncio.Task[_Result] | None]:
    """The result, or the task that will have it. Raises what the coroutine raises at once.

    Until its first wait the coroutine is in no task: it must not ask for the current one.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as end:
        return end.value, None
    return None, asyncio.get_running_loop().create_task(_as_coroutine(work, waits_for))


async def _as_coroutine(work: Coroutine[Any, Any, _Result], waits_for: object) -> _Result:
    return await _rest(work, waits_for)


@coroutine
def _rest(work: Coroutine[Any, Any, _Result], waits_for: object) -> Generator[object, Any, _Result]:
    """Wait for what the coroutine waits for, then go on where it stopped."""
    while True:
        cause: BaseException | None = None
        try:
            yield waits_for
        except BaseException as error:  # Outer edge of a task: whatever it is, is the coroutine's.
            cause = error
        try:
            waits_for = work.send(None) if cause is None else work.throw(cause)
        except StopIteration as end:
            result: _Result = end.value
            return result
