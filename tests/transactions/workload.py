"""A random load of transactional clients, with everything that may befall them.

Workers are processes, so that they can be killed, and others take their places. Brokers are killed
too, where the caller has one to kill. The choices come from a seed; what becomes of them is up to
the machine, so a seed gives a similar run and not the same.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient, NewTopic

from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import HANG_S, wait_until
from tests.transactions.final_reader import end_transactions, read_all
from tests.transactions.history import read_history
from tests.transactions.worker_process import topics

# Each process has several roles: a client waits more than it works.
SLOTS: Sequence[tuple[str, ...]] = (
    ("confluent-transactions", "confluent-transactions"),
    ("aiokafka-transactions", "confluent-plain"),
    ("processor", "confluent-member"),
    ("processor", "confluent-member", "aiokafka-plain"),
    ("confluent-reader", "aiokafka-reader", "aiokafka-member"),
)
BROKER_KILL_S = (3.0, 8.0)
WORKER_KILL_S = (3.0, 8.0)


@dataclass(slots=True)
class Worker:
    slot: int
    errors: Path
    process: ChildProcess


@dataclass(slots=True, kw_only=True)
class Workload:
    bootstrap: str
    # Where the history of this round goes.
    directory: Path
    seed: int
    # Topics and groups are new for each round; transactional ids are not.
    round: int = 0
    # How workers read; the last reader is not one of them.
    isolation: str = "read_committed"
    kill_broker: Callable[[], None] | None = None
    broker_kills: int = 0
    worker_kills: int = 0
    _random: Random = field(init=False)
    _workers: list[Worker] = field(default_factory=list)
    _started: int = 0

    def run(self, seconds: float) -> None:
        """Afterwards, the directory holds the whole history."""
        self._random = Random(self.seed)
        self.directory.mkdir(parents=True)
        self._create_topics()
        with ExitStack() as running:
            running.callback(self._kill_all)
            for slot in range(len(SLOTS)):
                self._start(slot)
            self._disturb(time.monotonic() + seconds)
            self._stop_all()
        end_transactions(self.bootstrap, self._transactional_ids())
        read_all(self.bootstrap, topics(self.round), self.directory)

    def _transactional_ids(self) -> set[str]:
        found = {event.transactional_id for event in read_history(self.directory)}
        return found - {""}

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = [NewTopic(name, count, 1) for name, count in topics(self.round).items()]
        for future in admin.create_topics(new).values():
            future.result(HANG_S)

        def are_there() -> bool:
            return topics(self.round).keys() <= admin.list_topics(timeout=HANG_S).topics.keys()

        wait_until(are_there, "the topics")

    def _start(self, slot: int) -> None:
        self._started += 1
        name = f"round{self.round}-slot{slot}-worker{self._started}"
        errors = self.directory / f"{name}.err"
        command = [
            *(sys.executable, "-m", "tests.transactions.worker_process"),
            *(self.bootstrap, str(self.directory), name, f"slot{slot}"),
            *(str(self._random.getrandbits(32)), str(self.round), self.isolation, *SLOTS[slot]),
        ]
        with errors.open("wb") as file:
            process = ChildProcess(*command, stdout=file, stderr=file)
        self._workers.append(Worker(slot, errors, process))

    def _disturb(self, deadline: float) -> None:
        broker_kill = time.monotonic() + self._random.uniform(*BROKER_KILL_S)
        worker_kill = time.monotonic() + self._random.uniform(*WORKER_KILL_S)
        while (now := time.monotonic()) < deadline:
            if self.kill_broker is not None and now >= broker_kill:
                self.kill_broker()
                self.broker_kills += 1
                broker_kill = time.monotonic() + self._random.uniform(*BROKER_KILL_S)
            if now >= worker_kill:
                self._replace(self._random.choice(self._workers))
                worker_kill = time.monotonic() + self._random.uniform(*WORKER_KILL_S)
            self._see_that_all_run()
            time.sleep(0.1)

    def _replace(self, worker: Worker) -> None:
        worker.process.kill()
        self._workers.remove(worker)
        self.worker_kills += 1
        self._start(worker.slot)

    def _see_that_all_run(self) -> None:
        for worker in self._workers:
            assert worker.process.is_running, (
                f"{SLOTS[worker.slot]} ended: {worker.errors.read_text()}"
            )

    def _stop_all(self) -> None:
        for worker in self._workers:
            worker.process.signal(signal.SIGTERM)
        deadline = time.monotonic() + HANG_S
        for worker in self._workers:
            if not worker.process.ends_within(max(deadline - time.monotonic(), 0)):
                # It writes where its threads are.
                worker.process.signal(signal.SIGUSR1)
                worker.process.ends_within(1)
            code = worker.process.kill().returncode
            # One that has only just been started ends before it has begun.
            assert code in {0, -signal.SIGTERM}, (
                f"{SLOTS[worker.slot]}: {code}: {worker.errors.read_text()}"
            )

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.process.kill()
