"""A broker process under attack: its memory, and what honest producers get meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from tests.clients.broker_process import BrokerProcess
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient
from tests.fuzz.broker_load import MIB, create_topic, produce_many

MAX_GROWTH_BYTES = 400 * MIB


class Siege:
    """What a broker went through."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.waits_ms: list[float] = []
        """How long each honest produce took."""
        self.idle_bytes = _memory_bytes(broker.pid, "VmRSS")
        self._is_over = threading.Event()

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def growth_bytes(self) -> int:
        """The most memory that the broker has had, over what it had idle."""
        return _memory_bytes(self.broker.pid, "VmHWM") - self.idle_bytes

    @property
    def p99_ms(self) -> float:
        return sorted(self.waits_ms)[len(self.waits_ms) * 99 // 100]

    def produce(self) -> None:
        """Produce as an honest client does, until it is over."""
        client = BlockingClient(self.port)
        batch = bytes(batch_of(b"x" * 100))
        while not self._is_over.wait(0.002):
            began = perf_counter()
            assert client.produce("honest", batch).error_code == 0
            self.waits_ms.append((perf_counter() - began) * 1000)
        client.close()

    def end(self) -> None:
        self._is_over.set()

    def __str__(self) -> str:
        return (
            f"{self.growth_bytes / MIB:.0f} MiB over idle; {len(self.waits_ms)} honest produces: "
            f"p99 {self.p99_ms:.0f} ms, longest {max(self.waits_ms):.0f} ms"
        )


@contextmanager
def siege(home: Path, settings: str = "") -> Iterator[Siege]:
    """A broker that honest clients use while the block attacks it.

    Afterwards its memory must have stayed in bounds, and honest clients must have been served.
    """
    with BrokerProcess(home, settings=settings) as broker:
        create_topic(broker.port, "honest")
        produce_many(broker.port, "honest")
        besieged = Siege(broker)
        producer = threading.Thread(target=besieged.produce)
        producer.start()
        try:
            yield besieged
        finally:
            besieged.end()
            producer.join()
        print(besieged)
        assert besieged.growth_bytes < MAX_GROWTH_BYTES, str(besieged)
        served = len(besieged.waits_ms)
        produce_many(broker.port, "honest")
        assert served, "no honest produce was answered meanwhile"
        broker.stop()


def _memory_bytes(pid: int, line: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    [found] = [each for each in status.splitlines() if each.startswith(f"{line}:")]
    return int(found.split()[1]) * 1024
