"""Runs a broker in a process of its own, which can be killed.

Invariant: when `stop` or `kill` has returned, or `start` has raised, the process is gone.
After a crash of the caller: the process hears that nobody speaks to it any more, and ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from typing import Any

from millstream.errors import BrokerNotRunning, BrokerProcessFailed
from millstream.testing.control_lines import line_of, raised, value_of
from millstream.testing.plan import Plan

_MODULE = "millstream.testing"
_START = "start"
_STOP_S = 10.0
_ENDED = "it has ended"


class ProcessHost:
    """One process after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, Future[Any]] = {}

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, plan: Plan) -> None:
        """Return when it serves. Raises what keeps it from that."""
        self._process = subprocess.Popen(  # noqa: S603 - it is our own module
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the test, which stops the broker.
            start_new_session=True,
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process,), name="millstream-process", daemon=True
        )
        self._reader.start()
        try:
            self.call(_START, asdict(plan))
        except BaseException:
            self.kill()
            raise

    def call(self, name: str, values: dict[str, Any]) -> Any:
        """Do something to the broker, and return what comes of it; see `Controls`."""
        process, reader = self._process, self._reader
        if process is None or process.stdin is None or reader is None:
            raise BrokerNotRunning
        if not reader.is_alive():
            # Also in a fork of the test's process, which must not speak to the broker of the test.
            raise BrokerProcessFailed(reason=_ENDED)
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            # The reader hears of the end, too; a closed file is how another thread stops it.
            with suppress(BrokenPipeError, ValueError):
                process.stdin.write(line_of({"id": number, "do": name, "values": values}))
                process.stdin.flush()
            if not reader.is_alive():
                self._fail_all()
        return answer.result()

    def stop(self) -> None:
        """Stop it in good order. May be called twice."""
        if self._process is None or self._process.stdin is None:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerProcessFailed(reason=f"it did not stop in {_STOP_S:g} s") from None
        self._collect()

    def kill(self) -> None:
        """End it at once. May be called twice."""
        if self._process is not None:
            self._process.kill()
            self._collect()

    def _collect(self) -> None:
        process, reader = self._process, self._reader
        assert process is not None
        assert reader is not None
        process.wait()
        reader.join()
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        self._process = self._reader = None

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Hand each answer to the one who waits for it, until there are no more."""
        assert process.stdout is not None
        for line in process.stdout:
            answer = value_of(line)
            with self._lock:
                waiting = self._waiting.pop(answer["id"])
            if "error" in answer:
                waiting.set_exception(raised(answer))
            else:
                waiting.set_result(answer["result"])
        with self._lock:
            self._fail_all()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            each.set_exception(BrokerProcessFailed(reason=_ENDED))
