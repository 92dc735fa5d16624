"""A broker under attack: what it takes of memory, and how long honest clients wait meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients.broker_process import BrokerProcess
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient
from tests.fuzz.broker_load import MIB, create_topic, own_memory_bytes

ALLOWED_BYTES = 400 * MIB
"""What all attackers together may add to the memory of an idle broker."""
SETTINGS = f"[memory]\nmax.memory.bytes = {192 * MIB}\n"
_LOOK_S = 0.005


class Watch:
    """Looks at the broker's memory all the time, and produces as an honest client would."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._pid = broker.pid
        self._client = BlockingClient(broker.port)
        self._batch = bytes(batch_of(b"x" * 100))
        self.idle_bytes = self.peak_bytes = own_memory_bytes(broker.pid)
        self.waits_s: list[float] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, daemon=True),
            threading.Thread(target=self._produce, daemon=True),
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join()
        self._client.close()

    @property
    def grown_bytes(self) -> int:
        return self.peak_bytes - self.idle_bytes

    @property
    def p99_s(self) -> float:
        """Of honest produce requests; as good as the longest for a few."""
        return sorted(self.waits_s)[int(len(self.waits_s) * 0.99)]

    def __str__(self) -> str:
        return (
            f"{self.grown_bytes / MIB:.0f} MiB over idle; {len(self.waits_s)} honest produces, "
            f"p99 {self.p99_s * 1000:.1f} ms, longest {max(self.waits_s) * 1000:.1f} ms"
        )

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self.peak_bytes = max(self.peak_bytes, own_memory_bytes(self._pid))

    def _produce(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            began_s = time.perf_counter()
            assert self._client.produce("honest", self._batch).error_code == 0
            self.waits_s.append(time.perf_counter() - began_s)


@contextmanager
def attacked(home: Path, settings: str = SETTINGS) -> Iterator[BrokerProcess]:
    """A broker with all listeners and a topic for honest clients."""
    address = "127.0.0.1:0"
    with BrokerProcess(home, settings=settings, http=address, pylogstreams=address) as broker:
        create_topic(broker.port, "honest")
        yield broker
        assert broker.is_running
        broker.stop()


@contextmanager
def watched(broker: BrokerProcess) -> Iterator[Watch]:
    """Watch until the block ends; then honest requests must have come through, within memory."""
    watch = Watch(broker)
    watch.start()
    try:
        yield watch
        served = len(watch.waits_s)
        while len(watch.waits_s) < served + 3:
            time.sleep(_LOOK_S)
    finally:
        watch.stop()
    print(watch)
    assert watch.grown_bytes < ALLOWED_BYTES, str(watch)
