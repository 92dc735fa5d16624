"""A broker as its users run it: a real process, which can be stopped, killed and started again.

A broker that complains on stderr fails the test that used it: real clients give it no reason to.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
READY_S = 30.0
STOP_S = 10.0
# Ports that the system never gives to an outgoing connection. A client that tries again and again
# to reach a broker that is down could otherwise be given the broker's port, and reach itself.
FIXED_PORTS = range(20_000, 32_000)
# Many tests send messages of long ago. A test that is slow would find them deleted, and the broker
# warning of it.
_UPKEEP = "log.retention.check.interval.ms"
_NO_UPKEEP = {"MILLSTREAM_STORAGE_LOG_RETENTION_CHECK_INTERVAL_MS": "3600000"}


class BrokerProcess:
    """One data directory, and the process that serves it now, if any.

    A `{port}` in the settings stands for the port that it is to have. Doors other than Kafka's are
    closed, unless an address is given for them. Nothing is deleted or compacted, unless the
    settings say how often to look for that.
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
        self.port = port
        self.http_port = 0
        self._host = host
        self._http = http
        self.pylogstreams_port = 0
        self._pylogstreams = pylogstreams
        self._config = home / "broker.toml"
        self._config.write_text(settings.replace("{port}", str(port)))
        self._environment = os.environ | ({} if _UPKEEP in settings else _NO_UPKEEP)
        self._errors = home / "broker.err"
        self._errors.touch()
        self._seen_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever became of it, it is gone."""
        if self.is_running:
            self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

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
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        self._process = self._begin()
        ready = self._wait_until_ready(self._process)
        addresses = dict(word.split("=", 1) for word in ready.split()[1:] if "=" in word)
        self.port = int(addresses["kafka"].rpartition(":")[2])
        if "http" in addresses:
            self.http_port = int(addresses["http"].rpartition(":")[2])
            # It comes back to the port that its clients know.
            self._http = addresses["http"]
        if "pylogstreams" in addresses:
            self.pylogstreams_port = int(addresses["pylogstreams"].rpartition(":")[2])
            self._pylogstreams = addresses["pylogstreams"]

    def start_and_kill(self, after_s: float) -> None:
        """Start it and kill it soon, most likely while it still recovers."""
        self._process = self._begin()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(after_s)
        self.kill()

    def _begin(self) -> subprocess.Popen[bytes]:
        assert not self.is_running
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def kill(self) -> None:
        """As `kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._collect(self._process)

    def stop(self) -> None:
        """Ask it to end, which it does promptly and well."""
        process = self._process
        assert process is not None
        assert process.poll() is None, f"the broker has ended by itself: {self._errors.read_text()}"
        process.send_signal(signal.SIGTERM)
        try:
            self._collect(process)
        except subprocess.TimeoutExpired:
            process.kill()
            self._collect(process)
            raise
        assert process.returncode == 0, self._errors.read_text()

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
            "--kafka": f"{self._host}:{self.port}",
            "--http": self._http,
            "--pylogstreams": self._pylogstreams,
        }
        words = [word for flag in flags.items() for word in flag]
        return [sys.executable, "-m", "millstream", "serve", *words]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        said = b""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if not select.select([process.stdout], [], [], deadline - time.monotonic())[0]:
                break
            chunk = os.read(process.stdout.fileno(), 65536)
            said += chunk
            ready = [line for line in said.decode().splitlines() if line.startswith("ready ")]
            if ready and said.endswith(b"\n"):
                return ready[0]
            if not chunk:
                break
        process.kill()
        self._collect(process)
        raise AssertionError(f"not ready: {said.decode()}{self._errors.read_text()}")

    def _collect(self, process: subprocess.Popen[bytes]) -> None:
        process.communicate(timeout=STOP_S)


def fixed_port() -> int:
    """A free port that a broker can come back to."""
    start = os.getpid() * 7
    for step in range(len(FIXED_PORTS)):
        port = FIXED_PORTS[(start + step) % len(FIXED_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
