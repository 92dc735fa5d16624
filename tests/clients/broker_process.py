"""A broker as its users run it: a real process, which can be stopped, killed and started again.

A broker that complains on stderr fails the test that used it: real clients give it no reason to.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Self

from tests.fakes.child_process import ChildProcess
from tests.fakes.ports import fixed_port

# Many tests send messages of long ago. A test that is slow would find them deleted, and the broker
# warning of it.
_UPKEEP = "log.retention.check.interval.ms"
_NO_UPKEEP = {"MILLSTREAM_STORAGE_LOG_RETENTION_CHECK_INTERVAL_MS": "3600000"}


class BrokerProcess:
    """One data directory, and the process that serves it now, if any.

    It has ports of its own, to which it comes back, for each address whose port is 0. A `{port}` in
    the settings stands for that of Kafka. Doors other than Kafka's are closed, unless an address is
    given for them. Nothing is deleted or compacted, unless the settings say how often to look for
    that.
    """

    def __init__(
        self,
        home: Path,
        *,
        settings: str = "",
        host: str = "127.0.0.1",
        port: int = 0,
        http: str = "off",
        pylogstreams: str = "off",
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.data = home / "data"
        self.port = port or fixed_port()
        self._kafka = f"{host}:{self.port}"
        self._http = _with_port(http)
        self._pylogstreams = _with_port(pylogstreams)
        self._config = home / "broker.toml"
        self._config.write_text(settings.replace("{port}", str(self.port)))
        self._environment = os.environ | ({} if _UPKEEP in settings else _NO_UPKEEP)
        self._errors = home / "broker.err"
        self._errors.touch()
        self._seen_bytes = 0
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever became of it, it is gone."""
        if self._process is not None:
            self._process.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http_port(self) -> int:
        return _port_of(self._http)

    @property
    def pylogstreams_port(self) -> int:
        return _port_of(self._pylogstreams)

    @property
    def url(self) -> str:
        """Of its HTTP door."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        self._process = self._begin()
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def start_and_kill(self, after_s: float) -> None:
        """Start it and kill it soon, most likely while it still recovers."""
        self._process = self._begin()
        self._process.ends_within(after_s)
        self.kill()

    def _begin(self) -> ChildProcess:
        assert not self.is_running
        with self._errors.open("ab") as errors:
            return ChildProcess(*self._command(), env=self._environment, stderr=errors)

    def kill(self) -> None:
        """As `kill -9`."""
        assert self._process is not None
        self._process.kill()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.signal(number)

    def stop(self) -> None:
        """Ask it to end, and wait until it has, as it should."""
        assert self.is_running, f"the broker has ended by itself: {self._errors.read_text()}"
        self.signal(signal.SIGTERM)
        self.wait()

    def wait(self) -> None:
        """Until it has ended, as it should."""
        assert self._process is not None
        assert self._process.finish().returncode == 0, self._errors.read_text()

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill_and_restart(self) -> None:
        self.kill()
        self.start()

    def complaints(self) -> list[str]:
        """What it said on stderr since the last look, but for mere information."""
        with self._errors.open("rb") as errors:
            errors.seek(self._seen_bytes)
            said = errors.read()
        self._seen_bytes += len(said)
        return [line for line in said.decode().splitlines() if '"level": "info"' not in line]

    def segments(self, topic: str, partition: int = 0) -> list[Path]:
        return sorted((self.data / "topics" / topic / str(partition)).glob("*.log"))

    def _command(self) -> list[str]:
        flags = {
            "--data-dir": str(self.data),
            "--config": str(self._config),
            "--kafka": self._kafka,
            "--http": self._http,
            "--pylogstreams": self._pylogstreams,
        }
        words = [word for flag in flags.items() for word in flag]
        return [sys.executable, "-m", "millstream", "serve", *words]

    def _wait_until_ready(self, process: ChildProcess) -> None:
        try:
            while not process.next_line().startswith("ready "):
                pass
        except AssertionError as failure:
            raise AssertionError(f"{failure}\n{self._errors.read_text()}") from None


def _with_port(address: str) -> str:
    """The address, with a port for a port of 0."""
    host, _, port = address.rpartition(":")
    return f"{host}:{fixed_port()}" if port == "0" else address


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
