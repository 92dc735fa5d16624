"""An event loop on a thread of its own, for callers who have none.

Invariant: when `close` has returned, the thread is gone and the loop is closed.
After a crash of the caller: the thread is a daemon, so it keeps no process alive. Nothing is lost
by that, since every call waits for its answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from millstream.errors import ClientClosed

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads, any number of them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="millstream-client", daemon=True)
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def time_s(self) -> float:
        """A clock that only goes forward."""
        return self._loop.time()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it there, and return what it returns. Raises what it raises, and ClientClosed."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking client cannot be used from within its own event loop")
        with self._lock:
            if self._is_closed:
                work.close()
                raise ClientClosed(what="connection to the broker")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            # The loop was closed while this call waited.
            raise ClientClosed(what="connection to the broker") from None
        except BaseException:
            # Also Ctrl-C in the caller's thread: what nobody waits for any more must not go on.
            future.cancel()
            raise

    def close(self) -> None:
        """End what still runs, and wait until the thread is gone. May be called twice."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_cancel_rest())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


async def _cancel_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
