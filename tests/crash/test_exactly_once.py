"""Consume, transform, produce: every record once, whoever is killed.

Two workers of one group read a topic, write what they read to another, and commit their offsets
with it in one transaction. A worker or the broker is killed at a random moment again and again,
while more records come in. In the end the output holds each record of the input exactly once, in
the order of its partition, and the group has committed all of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.clients.client_shape import Message, eventually, produce, read_to
from tests.clients.confluent_client import Confluent
from tests.crash.remote_transformer import MOMENTS, Notices, RemoteTransformer

pytestmark = pytest.mark.system

INPUT, OUTPUT = "input", "output"
INPUT_PARTITIONS = 4
OUTPUT_PARTITIONS = 2
WORKERS = 2
# What must be committed between two kills, and how many more records come in than that: a worker
# that was killed has perhaps not told what it had committed.
MAX_RECORDS = 400
SPARE_RECORDS = 100
EARLY_SHARE = 0.1
# Up to so long after the moment that was waited for.
MAX_DELAY_S = 0.02
END = b"the end"
SETTINGS = """
[groups]
group.min.session.timeout.ms = 500
group.initial.rebalance.delay.ms = 50
group.consumer.session.timeout.ms = 3000
group.consumer.heartbeat.interval.ms = 200

[storage]
millstream.checkpoint.ms = 500
"""


class Mill:
    """Input, workers and output, and what befalls them."""

    def __init__(self, broker: BrokerProcess, running: ExitStack, *, kind: str, seed: int) -> None:
        self._broker = broker
        self._random = Random(seed)
        self._numbers = [0] * INPUT_PARTITIONS
        self._admin = Confluent().admin(broker.address)
        self._admin.create(INPUT, partitions=INPUT_PARTITIONS)
        self._admin.create(OUTPUT, partitions=OUTPUT_PARTITIONS)
        self._feed = Confluent().producer(broker.address, idempotent=True)
        self.notices = Notices()
        self._workers = {
            name: RemoteTransformer(
                kind,
                broker.address,
                name,
                topics=(INPUT, OUTPUT),
                partitions=OUTPUT_PARTITIONS,
                notices=self.notices,
            )
            for name in (f"worker-{number}" for number in range(WORKERS))
        }
        for worker in self._workers.values():
            running.callback(worker.kill)

    def step(self) -> None:
        """Let some records through, then kill somebody who is in the middle of something."""
        count = self._random.randint(1, MAX_RECORDS)
        self._pour(count + SPARE_RECORDS)
        self.notices.wait_for_records(count)
        # Still on their way when the broker is killed, some of them.
        self._pour(SPARE_RECORDS)
        moment = self._random.choice(MOMENTS)
        is_worker = self._random.random() < 0.5
        delay_s = self._random.choice([0.0, self._random.random() * MAX_DELAY_S])
        worker = self.notices.wait_for_moment(moment)
        time.sleep(delay_s)
        if is_worker:
            self._workers[worker].kill_and_restart()
        else:
            self._broker.kill()
            if self._random.random() < EARLY_SHARE:
                self._broker.start_and_kill(self._random.random())
            self._broker.start()

    def finish(self) -> list[int]:
        """Wait until all of the input is transformed; where each partition of it ends."""
        self._feed.flush()
        self._feed.close()
        wanted = {(INPUT, partition): end for partition, end in enumerate(self._numbers)}

        def are_committed() -> bool:
            time.sleep(0.1)
            return self._admin.group_offsets(INPUT) == wanted

        eventually(are_committed, f"commits of {wanted}")
        for worker in self._workers.values():
            worker.finish()
        # Nobody reads on, and nothing has changed since.
        assert self._admin.group_offsets(INPUT) == wanted
        return self._numbers

    def _pour(self, count: int) -> None:
        for _ in range(count):
            partition = self._random.randrange(INPUT_PARTITIONS)
            number = self._numbers[partition]
            self._feed.send(Message(INPUT, value_of(partition, number), partition=partition))
            self._numbers[partition] += 1


def value_of(partition: int, number: int) -> bytes:
    return b"record %d of %d" % (number, partition)


def prove_output(address: str, ends: Sequence[int]) -> None:
    """Each record of the input is there once, in order, and where it belongs."""
    dropped = 0
    for target in range(OUTPUT_PARTITIONS):
        found = output_of(address, target, isolation="read_committed")
        for partition, end in enumerate(ends):
            mine = [each.key for each in found if (each.key or b"").startswith(b"%d " % partition)]
            wanted = range(target, end, OUTPUT_PARTITIONS)
            assert mine == [b"%d %d" % (partition, offset) for offset in wanted]
        for each in found:
            partition, offset = map(int, (each.key or b"").split())
            assert each.value == value_of(partition, offset)
        everything = output_of(address, target, isolation="read_uncommitted")
        kept = {each.offset for each in found}
        assert kept <= {each.offset for each in everything}
        dropped += len(everything) - len(found)
    assert dropped > 0, "nothing was aborted, so nothing was tested"


def output_of(address: str, partition: int, *, isolation: str) -> list[Message]:
    """All that a partition of the output holds, up to a record that is put there for it."""
    message = Message(OUTPUT, END, partition=partition)
    (end,) = produce(Confluent(), address, [message])
    consumer = Confluent().consumer(address, isolation=isolation)
    try:
        consumer.assign({(OUTPUT, partition): 0})
        return [each for each in read_to(consumer, end) if each.value != END]
    finally:
        consumer.close()


def kill_again_and_again(path: Path, *, kind: str, cycles: int, seed: int) -> None:
    print(f"seed {seed}")
    with (
        BrokerProcess(path, settings=SETTINGS) as broker,
        ExitStack() as running,
    ):
        mill = Mill(broker, running, kind=kind, seed=seed)
        for _ in range(cycles):
            mill.step()
        print(mill.notices)
        prove_output(broker.address, mill.finish())
        broker.stop()
        assert broker.complaints() == []


kinds = pytest.mark.parametrize("kind", ["confluent", "confluent-consumer", "aiokafka"])


@kinds
def test_transformed_records_come_out_exactly_once(tmp_path: Path, kind: str) -> None:
    kill_again_and_again(tmp_path / "broker", kind=kind, cycles=10, seed=1)


@pytest.mark.torture
@kinds
def test_hundred_kills_leave_every_transformed_record_exactly_once(
    tmp_path: Path, kind: str
) -> None:
    kill_again_and_again(tmp_path / "broker", kind=kind, cycles=100, seed=2)
