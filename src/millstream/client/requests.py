"""A request to the broker, from when it is made until it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from millstream.client.frames import Frame

Answered = Callable[[Frame], None]


class Request:
    """One frame, and who waits for its answer.

    Invariant: `answer` is settled once: by the broker, by the loss of the connection, or by time.
    """

    __slots__ = ("answer", "deadline", "frame", "is_bound", "number", "on_result", "repeats")

    def __init__(
        self,
        number: int,
        frame: Frame,
        *,
        answer: asyncio.Future[Frame],
        repeats: int = 0,
        is_bound: bool = False,
        on_result: Answered | None = None,
    ) -> None:
        self.number = number
        self.frame = frame
        self.answer = answer
        self.repeats = repeats
        """How often it may be repeated when its answer was lost."""
        self.is_bound = is_bound
        """It makes sense on this connection alone, whether it has left or not."""
        self.on_result = on_result
        """Called before anything that the broker sent after the answer is looked at."""
        self.deadline: asyncio.TimerHandle | None = None

    @property
    def operation(self) -> str:
        return str(self.frame["op"])

    @property
    def is_done(self) -> bool:
        return self.answer.done()

    def succeed(self, result: Frame) -> None:
        if not self.answer.done():
            if self.on_result is not None:
                self.on_result(result)
            self.answer.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            # Nobody may be waiting for it any more, and that is no reason to complain.
            self.answer.exception()
