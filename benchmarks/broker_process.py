"""Our broker as a user runs it: `python -m millstream serve`, in a process of its own."""

from __future__ import annotations

import os
import sys

from benchmarks.kafka_wire import KafkaConnection
from benchmarks.server_process import Address, ServerProcess, free_port

_START_S = 60


class BrokerProcess(ServerProcess):
    """Runs inside a `with` block, which begins when the broker has answered a request."""

    def __init__(
        self,
        directory: str,
        *,
        has_http: bool = False,
        has_pylogstreams: bool = False,
        module: str = "millstream",
    ) -> None:
        """`module` is what is run; it must understand what `millstream` does."""
        os.makedirs(directory, exist_ok=True)
        # A port that we know before the broker does, so that we need not wait for it to tell.
        self.address: Address = ("127.0.0.1", free_port())
        self.http: Address = ("127.0.0.1", free_port())
        http = f"{self.http[0]}:{self.http[1]}" if has_http else "off"
        self.pylogstreams: Address = ("127.0.0.1", free_port())
        host, port = self.pylogstreams
        pylogstreams = f"{host}:{port}" if has_pylogstreams else "off"
        super().__init__(
            [
                *(sys.executable, "-m", module, "serve"),
                *("--kafka", f"{self.address[0]}:{self.address[1]}"),
                *("--http", http),
                *("--pylogstreams", pylogstreams),
                *("--data-dir", os.path.join(directory, "data")),
            ],
            log_path=os.path.join(directory, "broker.log"),
        )

    def __enter__(self) -> BrokerProcess:
        try:
            self.connect().close()
        except BaseException:
            self.stop()
            raise
        return self

    def connect(self) -> KafkaConnection:
        """As soon as the broker listens."""
        return self.until(lambda: KafkaConnection(self.address), within_s=_START_S)
