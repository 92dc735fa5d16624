"""A pipeline as its user runs it: SIGTERM ends it after the batch, and it goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import deltalake
import pytest

from millstream.client.kafka import Cluster
from millstream.errors import PipelineBusy
from millstream.settings.names import PIPELINES_TOPIC
from millstream.spark.pipeline import checkpoint
from millstream.spark.pipeline.declaration import read
from tests.clients.broker_process import BrokerProcess, fixed_port
from tests.spark.pipelines import command, contents, output
from tests.spark.records import create_topic, produce

FILE = """\
name: shop
kafka: {{bootstrap.servers: "{address}"}}
sources:
  - name: orders
    topic: orders
    format: json
    schema: {{id: bigint not null}}
steps:
  - name: held
    python: shop_gate:gate
    inputs: [orders]
sinks:
  - name: copy
    from: orders
    topic: copy
  - name: table
    from: held
    delta: table
trigger: {{interval: 200 ms}}
spark:
  spark.master: local[2]
  spark.driver.memory: 1g
  spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
GATE = """\
import pathlib
import time

HOME = pathlib.Path({home!r})

def hold(batches):
    (HOME / "begun").touch()
    while (HOME / "closed").exists():
        time.sleep(0.02)
    yield from batches

def gate(orders):
    return orders.mapInArrow(hold, orders.schema)
"""


class Run:
    """The command's process, and what it has told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        self._news = threading.Condition()
        assert process.stdout is not None
        assert process.stderr is not None
        self._threads = [
            threading.Thread(target=self._listen, args=(process.stdout,)),
            threading.Thread(target=self.complaints.extend, args=(process.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            with self._news:
                self.told.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Also for what the command does not tell."""
        with self._news:
            while not condition():
                assert self.process.poll() is None, (self.told[-1:], self.complaints[-30:])
                self._news.wait(0.05)

    def last(self, sink: str) -> dict[str, Any]:
        queries = self.told[-1]["queries"] if self.told else []
        found: dict[str, Any] = next((each for each in queries if each["sink"] == sink), {})
        return found

    def end(self) -> None:
        self.process.kill()
        for thread in self._threads:
            thread.join()


@contextmanager
def running(path: Path) -> Iterator[Run]:
    with subprocess.Popen(
        command("run", str(path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        run = Run(process)
        try:
            yield run
        finally:
            run.end()


@pytest.fixture
def broker_of_its_own(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", port=fixed_port()) as process:
        yield process


def values(start: int, count: int) -> list[bytes]:
    """One in ten of them is no order."""
    return [
        b"no order" if number % 10 == 3 else json.dumps({"id": number}).encode()
        for number in range(start, start + count)
    ]


def test_batch_that_runs_at_sigterm_is_finished_and_a_restart_goes_on_behind_it(
    java: None, broker_of_its_own: BrokerProcess, tmp_path: Path
) -> None:
    broker = broker_of_its_own
    path, closed, begun = (tmp_path / name for name in ("shop.yaml", "closed", "begun"))
    path.write_text(FILE.format(address=broker.address))
    (tmp_path / "shop_gate.py").write_text(GATE.format(home=str(tmp_path)))
    create_topic(broker.address, "orders")
    produce(broker.address, "orders", values(0, 100))
    closed.touch()
    with running(path) as run:
        run.wait_for(begun.exists)
        with pytest.raises(PipelineBusy), checkpoint.locked(read(path)):
            pass
        # In the middle of a batch the broker dies and comes back: the run goes on.
        broker.kill_and_restart()
        closed.unlink()
        run.wait_for(lambda: run.last("table").get("rows_out") == 90)
        run.wait_for(lambda: run.last("copy").get("rows_out") == 90)
        run.wait_for(lambda: run.last("dead-letters").get("rows_out") == 10)

        closed.touch()
        begun.unlink()
        produce(broker.address, "orders", values(100, 100))
        run.wait_for(begun.exists)
        batch = _newest(tmp_path, "offsets")
        assert _newest(tmp_path, "commits") == batch - 1
        assert "running" in output("list", "--bootstrap", broker.address)
        run.process.send_signal(signal.SIGTERM)
        run.wait_for(lambda: run.told[-1]["state"] == "stopping")
        closed.unlink()
        assert run.process.wait(100) == 0, run.complaints
    assert run.told[-1]["state"] == "stopped"
    assert _newest(tmp_path, "commits") >= batch
    status = json.loads(output("status", str(path), "--json"))
    assert (status["state"], status["rows_in"]) == ("stopped", run.told[-1]["rows_in"])
    assert "stopped" in output("status", "shop", "--bootstrap", broker.address)

    output("run", str(path), "--once")
    good = [number for number in range(200) if number % 10 != 3]
    table = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table.column("id").to_pylist()) == good
    copies = [json.loads(each.value())["id"] for each in contents(broker.address, "copy")]
    assert sorted(copies) == good
    assert len(contents(broker.address, "shop.dead-letters")) == 20
    broker.stop()


def _newest(home: Path, kind: str) -> int:
    """The number of the last batch that is planned, or finished."""
    folder = home / "checkpoints" / "shop" / "g1" / "table" / kind
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def test_reader_that_leaves_ends_the_run_after_its_batch(
    java: None, broker_of_its_own: BrokerProcess, tmp_path: Path
) -> None:
    address = broker_of_its_own.address
    create_topic(address, "orders")
    produce(address, "orders", values(0, 50))
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(address=address))
    (tmp_path / "shop_gate.py").write_text(GATE.format(home=str(tmp_path)))
    with subprocess.Popen(
        command("run", str(path)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
    assert process.returncode == 0
    assert "Exception" not in complaints
    told = json.loads(output("status", str(path), "--json"))
    assert (told["state"], told["error"]) == ("stopped", None)


def test_spark_that_does_not_start_is_told_and_leaves_no_topics(
    java: None, broker_of_its_own: BrokerProcess, tmp_path: Path
) -> None:
    address = broker_of_its_own.address
    create_topic(address, "orders")
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(address=address).replace("local[2]", "nowhere"))
    done = subprocess.run(
        command("run", str(path)), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert "Master must either be" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("millstream: Spark does not start: Java has")
    assert "Traceback" not in done.stderr
    with Cluster(address) as cluster:
        assert set(cluster.partitions(None)) == {"orders", PIPELINES_TOPIC}
