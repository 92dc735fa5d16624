"""A driver that is killed with its JVM: every row is in the topic and in the table once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.client.kafka import LATEST, Cluster
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.spark.driver_process import TABLE_QUERY
from tests.spark.records import create_topic
from tests.spark.sink_driver import committed_values

pytestmark = pytest.mark.system

FILES = 4
ROWS = 500
PARTITIONS = 3
MOMENTS = ("task", "before", "after")
# From the moment at which Spark has planned a batch: about as long as the batch takes.
LATEST_KILL_S = 1.0
POLL_S = 0.01


class Driver:
    """One query to a topic and one to a table, over all processes that run them."""

    def __init__(
        self,
        home: Path,
        broker: BrokerProcess,
        topic: str,
        *,
        mode: str = "append",
        files: int = FILES,
    ) -> None:
        self._home = home
        self._address = broker.address
        self._topic = topic
        self._mode = mode
        self._files = files
        (home / "numbers").mkdir()
        for number in range(files):
            ids = list(range(number * ROWS, (number + 1) * ROWS))
            rows = pa.table({"id": pa.array(ids, pa.int64()), "word": [f"word {i}" for i in ids]})
            pq.write_table(rows, home / "numbers" / f"{number:02}.parquet")
        create_topic(broker.address, topic, partitions=PARTITIONS)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self._home / "table"))

    def table_ids(self) -> list[int]:
        """Everything that a full read of the table finds."""
        return sorted(self.table.to_pyarrow_table().column("id").to_pylist())

    def die_at(self, moment: str, batch: int) -> None:
        """Run until the table's query reaches this moment of a batch."""
        with self._running(moment, batch) as process:
            assert process.finish().returncode == -signal.SIGKILL, self._output()

    def die_after(self, batch: int, delay_s: float) -> None:
        """Run until some time after Spark has planned this batch of the topic's query."""
        planned = self._home / "topic-checkpoint" / "offsets" / str(batch)
        with self._running("never", 0) as process:
            while not planned.exists():
                assert not process.ends_within(POLL_S), self._output()
            if process.ends_within(delay_s):
                assert process.finish().returncode == 0, self._output()

    def finish(self) -> None:
        """Run to the end, and check that every row is in the topic and in the table once."""
        with self._running("never", 0) as process:
            assert process.finish().returncode == 0, self._output()
        everything = list(range(self._files * ROWS))
        found = committed_values(self._address, self._topic, PARTITIONS)
        assert sorted(map(int, found)) == everything
        _assert_nothing_is_open(self._address, self._topic)
        assert self.table_ids() == everything
        # Compaction ran in between: there is not one file for each task of each batch.
        assert len(self.table.file_uris()) < 2 * self._files
        if self._mode == "upsert":
            assert list((self._home / "table" / "_millstream").rglob("*.parquet")) == []

    @contextmanager
    def _running(self, moment: str, batch: int) -> Iterator[ChildProcess]:
        words = [str(self._home), self._address, self._topic, self._mode, moment, str(batch)]
        command = [sys.executable, "-m", "tests.spark.driver_process", *words]
        with (
            (self._home / "output.txt").open("wb") as output,
            ChildProcess(*command, stdout=output, stderr=output) as process,
        ):
            try:
                yield process
            finally:
                if process.is_running:
                    # The driver and its JVM are one group.
                    os.killpg(process.pid, signal.SIGKILL)

    def _output(self) -> str:
        return (self._home / "output.txt").read_text()[-4000:]


def test_driver_killed_between_the_commits_of_delta_and_spark(
    java: None, tmp_path: Path, broker: BrokerProcess, topic: str
) -> None:
    driver = Driver(tmp_path, broker, topic)
    # This commit is followed by compaction. The query to the topic dies wherever it is.
    driver.die_at("after", 2)
    assert len(driver.table_ids()) == 3 * ROWS
    driver.finish()
    assert driver.table.transaction_version(TABLE_QUERY) == FILES - 1


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(4))
def test_driver_killed_at_any_moment_of_a_batch_to_the_table(
    java: None, tmp_path: Path, broker: BrokerProcess, topic: str, seed: int
) -> None:
    """Twenty times in all."""
    random = Random(seed)
    mode, files = ("append", "upsert")[seed % 2], 6
    driver = Driver(tmp_path, broker, topic, mode=mode, files=files)
    for batch in sorted(random.choice(range(files)) for _ in range(5)):
        driver.die_at(random.choice(MOMENTS), batch)
    driver.finish()
    assert driver.table.transaction_version(TABLE_QUERY) == files - 1


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(4))
def test_driver_killed_at_any_moment_of_a_batch_to_the_topic(
    java: None, tmp_path: Path, broker: BrokerProcess, topic: str, seed: int
) -> None:
    """Twenty times in all."""
    random = Random(seed)
    kills, files = 5, 14
    driver = Driver(tmp_path, broker, topic, files=files)
    # A kill at the wrong moment makes Spark put two files into one batch: then there are fewer.
    for batch in sorted(random.sample(range(files - kills), kills)):
        driver.die_after(batch, random.uniform(0.0, LATEST_KILL_S))
    driver.finish()


def _assert_nothing_is_open(address: str, topic: str) -> None:
    """Readers of committed rows are not kept waiting."""
    places = [(topic, number) for number in range(PARTITIONS)]
    with Cluster(address) as cluster:
        stable = cluster.offsets(places, LATEST, committed=True)
        assert stable == cluster.offsets(places, LATEST, committed=False)
