"""A driver that is killed with its JVM at any moment: every row is in the topic once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.client.kafka import LATEST, Cluster
from tests.clients.broker_process import ROOT, BrokerProcess
from tests.spark.records import create_topic
from tests.spark.sink_driver import committed_values

FILES = 10
ROWS = 200
PARTITIONS = 3
RUN_S = 300
# From the moment at which Spark has planned a batch: about as long as the batch takes.
LATEST_KILL_S = 1.0
POLL_S = 0.01


@pytest.fixture
def home(tmp_path: Path, java: None) -> Path:
    (tmp_path / "numbers").mkdir()
    for number in range(FILES):
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), tmp_path / "numbers" / f"{number:02}.parquet")
    return tmp_path


# Four times Java and a query, on a machine that may be busy.
@pytest.mark.timeout(400)
def test_driver_killed_three_times_then_every_row_is_there_once(
    home: Path, broker: BrokerProcess, topic: str
) -> None:
    _kill_and_finish(home, broker, topic, Random(topic), kills=3)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(4))
def test_driver_killed_again_and_again(
    home: Path, broker: BrokerProcess, topic: str, seed: int
) -> None:
    """Twenty times in all."""
    _kill_and_finish(home, broker, topic, Random(seed), kills=5)


def _kill_and_finish(
    home: Path, broker: BrokerProcess, topic: str, random: Random, *, kills: int
) -> None:
    create_topic(broker.address, topic, partitions=PARTITIONS)
    # A kill at the wrong moment makes Spark put two files into one batch: then there are fewer.
    for batch in sorted(random.sample(range(FILES - kills), kills)):
        with _query(home, broker, topic) as process:
            _wait_for_batch(process, home, batch)
            with suppress(subprocess.TimeoutExpired):
                process.wait(random.uniform(0.0, LATEST_KILL_S))
            # The driver and its JVM are one group.
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait(RUN_S) == -signal.SIGKILL
    with _query(home, broker, topic) as process:
        assert process.wait(RUN_S) == 0, (home / "said.txt").read_text()[-4000:]
    found = sorted(map(int, committed_values(broker.address, topic, PARTITIONS)))
    assert found == list(range(FILES * ROWS))
    _assert_nothing_is_open(broker.address, topic)


def _wait_for_batch(process: subprocess.Popen[bytes], home: Path, batch: int) -> None:
    """Until Spark has planned it."""
    planned = home / "checkpoint" / "offsets" / str(batch)
    while not planned.exists():
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
        assert process.poll() is None, (home / "said.txt").read_text()[-4000:]


@contextmanager
def _query(home: Path, broker: BrokerProcess, topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A query that has begun."""
    words = [str(home), broker.address, topic]
    with (home / "said.txt").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink_process", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            # A group of its own, which dies together.
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said == b"running\n", (home / "said.txt").read_text()[-4000:]
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(RUN_S)
            process.stdout.close()


def _assert_nothing_is_open(address: str, topic: str) -> None:
    """Readers of committed rows are not kept waiting."""
    places = [(topic, number) for number in range(PARTITIONS)]
    with Cluster(address) as cluster:
        stable = cluster.offsets(places, LATEST, committed=True)
        assert stable == cluster.offsets(places, LATEST, committed=False)
