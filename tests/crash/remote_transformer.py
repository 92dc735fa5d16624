"""Workers that transform records in processes of their own, as a test holds them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.fakes.child_process import ChildProcess

# What a worker says, with a count of records.
MOMENTS = ("open", "ending", "committed")


class Notices:
    """What all workers say, for one who waits for something of it."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self.troubles: list[str] = []
        self._last: tuple[str, str] = ("", "")
        self._changed = threading.Condition()

    def __str__(self) -> str:
        return "\n".join([str(dict(self.records)), *self.troubles])

    def add(self, worker: str, line: str) -> None:
        what, _, rest = line.partition(" ")
        with self._changed:
            if what == "trouble":
                self.troubles.append(f"{worker}: {rest}")
            else:
                self.records[what] += int(rest)
            self._last = worker, what
            self._changed.notify_all()

    def wait_for_records(self, count: int, *, within_s: float) -> None:
        """Until so many more are known to be committed."""
        wanted = self.records["committed"] + count
        self._wait(lambda: self.records["committed"] >= wanted, f"{count} records", within_s)

    def wait_for_moment(self, what: str, *, within_s: float) -> str:
        """Until a worker says that; which one it is."""
        self._wait(lambda: self._last[1] == what, what, within_s, is_fresh=True)
        return self._last[0]

    def _wait(
        self, condition: Callable[[], bool], what: str, within_s: float, *, is_fresh: bool = False
    ) -> None:
        deadline = time.monotonic() + within_s
        with self._changed:
            if is_fresh:
                self._last = ("", "")
            while not condition():
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"no {what} within {within_s} s; {self.troubles[-5:]}"
                self._changed.wait(left_s)


class RemoteTransformer:
    def __init__(
        self,
        kind: str,
        address: str,
        name: str,
        *,
        topics: tuple[str, str],
        partitions: int,
        notices: Notices,
    ) -> None:
        self._name = name
        self._arguments = [kind, address, name, *topics, str(partitions)]
        self._notices = notices
        self._start()

    def kill_and_restart(self) -> None:
        """As `kill -9`."""
        self.kill()
        self._start()

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> None:
        """Let it end what it is about."""
        assert self._process.finish().returncode == 0

    def _start(self) -> None:
        self._process = ChildProcess.python(
            *("-m", "tests.crash.transform_process", *self._arguments),
            on_line=partial(self._notices.add, self._name),
        )
