"""A server in a process of its own, on loopback, ended with SIGTERM when we are done with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

_STOP_S = 60
_RETRY_S = 0.002

Address = tuple[str, int]
_T = TypeVar("_T")


class ServerFailed(Exception):
    """The server ended, or did not answer in time; carries the end of what it printed."""


class ServerProcess:
    """Runs inside a `with` block. What the server prints goes to a file beside its data."""

    def __init__(
        self, command: Sequence[str], *, log_path: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log_path = log_path
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def until(self, attempt: Callable[[], _T], *, within_s: float) -> _T:
        """The outcome of the first attempt that the server answers."""
        deadline_s = time.perf_counter() + within_s
        while True:
            try:
                return attempt()
            except OSError as error:
                if self._process.poll() is not None or time.perf_counter() > deadline_s:
                    raise ServerFailed(self._last_words()) from error
            time.sleep(_RETRY_S)

    def _last_words(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def connect(address: Address) -> socket.socket:
    """A connection that sends at once and waits at most a minute."""
    connection = socket.create_connection(address, timeout=60)
    if connection.getsockname() == connection.getpeername():
        # Where nobody listens yet, the kernel may pick that very port for our own end.
        connection.close()
        raise ConnectionRefusedError("connected to itself")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
