"""A broker process under attack: what it takes of memory, and how long honest clients wait.

The memory is bounded in every run. How long honest clients wait depends on the machine, so it is
bounded where `HONEST_WAIT_MS` is set, as `make torture` does, and else only printed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

from tests.clients.broker_process import BrokerProcess
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient
from tests.fuzz.broker_load import MIB, create_topic, own_memory_bytes, produce_many

MAX_GROWTH_BYTES = 400 * MIB
"""What all attackers together may add to the memory of an idle broker."""
MAX_WAIT_MS = float(os.environ.get("HONEST_WAIT_MS", "inf"))
TIGHT_MEMORY = f"[memory]\nmax.memory.bytes = {192 * MIB}\n"
_LOOK_S = 0.005


class Siege:
    """Looks at the broker's memory all the time, and produces as an honest client does."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.port = broker.port
        self.waits_ms: list[float] = []
        """How long each honest produce took."""
        self._idle_bytes = self._most_bytes = own_memory_bytes(broker.pid)
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._look, self._produce)]

    @property
    def growth_bytes(self) -> int:
        """The most memory that the broker has had, over what it had idle."""
        return self._most_bytes - self._idle_bytes

    @property
    def p99_ms(self) -> float:
        """As good as the longest for a few."""
        return sorted(self.waits_ms)[len(self.waits_ms) * 99 // 100]

    def __str__(self) -> str:
        return (
            f"{self.growth_bytes / MIB:.0f} MiB over idle; {len(self.waits_ms)} honest produces: "
            f"p99 {self.p99_ms:.0f} ms, longest {max(self.waits_ms):.0f} ms"
        )

    def begin(self) -> None:
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join()

    def wait_for_honest(self, count: int = 3) -> None:
        """Let so many honest requests come through."""
        before = len(self.waits_ms)
        while len(self.waits_ms) < before + count:
            assert self._threads[-1].is_alive(), "the honest client was refused"
            sleep(_LOOK_S)

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._most_bytes = max(self._most_bytes, own_memory_bytes(self.broker.pid))

    def _produce(self) -> None:
        client = BlockingClient(self.port)
        batch = bytes(batch_of(b"x" * 100))
        while not self._is_over.wait(_LOOK_S):
            began = perf_counter()
            assert client.produce("honest", batch).error_code == 0
            self.waits_ms.append((perf_counter() - began) * 1000)
        client.close()


@contextmanager
def open_broker(home: Path, settings: str = TIGHT_MEMORY) -> Iterator[BrokerProcess]:
    """A broker with all listeners and a topic for honest clients."""
    address = "127.0.0.1:0"
    with BrokerProcess(home, settings=settings, http=address, pylogstreams=address) as broker:
        create_topic(broker.port, "honest")
        produce_many(broker.port, "honest")
        yield broker
        assert broker.is_running
        broker.stop()


@contextmanager
def besieged(broker: BrokerProcess) -> Iterator[Siege]:
    """Honest clients use a broker while the block attacks it; afterwards the bounds must hold."""
    siege = Siege(broker)
    siege.begin()
    try:
        yield siege
        siege.wait_for_honest()
    finally:
        siege.end()
    print(siege)
    assert siege.growth_bytes < MAX_GROWTH_BYTES, str(siege)
    assert siege.p99_ms < MAX_WAIT_MS, str(siege)


@contextmanager
def besieged_broker(home: Path, settings: str = "") -> Iterator[Siege]:
    """The same with a broker of its own."""
    with open_broker(home, settings) as broker, besieged(broker) as siege:
        yield siege
