"""A pipeline as its user runs it: it ends after its batch, and the next run goes on behind it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from millstream.client.kafka import Cluster
from millstream.errors import PipelineBusy
from millstream.settings.names import PIPELINES_TOPIC
from millstream.spark.pipeline import checkpoint
from millstream.spark.pipeline.declaration import read
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess
from tests.fakes.patience import wait_until
from tests.fakes.ports import fixed_port
from tests.spark.pipelines import command, contents, output
from tests.spark.records import create_topic, produce

pytestmark = pytest.mark.system

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

    def __init__(self, path: Path) -> None:
        self.told: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.process = ChildProcess(*command("run", str(path)), on_line=self._listen)

    def _listen(self, line: str) -> None:
        with self._news:
            self.told.append(json.loads(line))
            self._news.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Also for what the command does not tell."""
        with self._news:
            while not condition():
                assert self.process.is_running, (self.told[-1:], self.process.kill().stderr)
                self._news.wait(0.05)

    def wait_for_rows(self, **rows_out: int) -> None:
        """Until each of these sinks has written so many rows."""
        wanted = {sink.replace("_", "-"): count for sink, count in rows_out.items()}
        self.wait_for(lambda: self._rows_out() == wanted)

    def _rows_out(self) -> dict[str, int]:
        queries = self.told[-1]["queries"] if self.told else []
        return {each["sink"]: each["rows_out"] for each in queries}


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


def test_run_ends_after_its_batch_and_the_next_one_goes_on_behind_it(
    java: None, broker_of_its_own: BrokerProcess, tmp_path: Path
) -> None:
    broker = broker_of_its_own
    path, closed, begun = (tmp_path / name for name in ("shop.yaml", "closed", "begun"))
    path.write_text(FILE.format(address=broker.address))
    (tmp_path / "shop_gate.py").write_text(GATE.format(home=str(tmp_path)))
    create_topic(broker.address, "orders")
    produce(broker.address, "orders", values(0, 100))
    closed.touch()
    run = Run(path)
    with run.process:
        run.wait_for(begun.exists)
        with pytest.raises(PipelineBusy), checkpoint.locked(read(path)):
            pass
        # In the middle of a batch the broker dies and comes back: the run goes on.
        broker.kill_and_restart()
        closed.unlink()
        run.wait_for_rows(table=90, copy=90, dead_letters=10)

        closed.touch()
        begun.unlink()
        produce(broker.address, "orders", values(100, 100))
        run.wait_for(begun.exists)
        batch = _newest(tmp_path, "offsets")
        assert _newest(tmp_path, "commits") == batch - 1
        assert "running" in output("list", "--bootstrap", broker.address)
        run.process.signal(signal.SIGTERM)
        run.wait_for(lambda: run.told[-1]["state"] == "stopping")
        closed.unlink()
        ended = run.process.finish()
        assert ended.returncode == 0, ended.stderr
    assert run.told[-1]["state"] == "stopped"
    assert _newest(tmp_path, "commits") >= batch
    status = json.loads(output("status", str(path), "--json"))
    assert (status["state"], status["rows_in"]) == ("stopped", run.told[-1]["rows_in"])
    assert "stopped" in output("status", "shop", "--bootstrap", broker.address)

    _run_until_nobody_reads(path, broker)
    good = [number for number in range(200) if number % 10 != 3]
    table = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(table.column("id").to_pylist())[: len(good)] == good
    copies = [json.loads(each.value())["id"] for each in contents(broker.address, "copy")]
    assert sorted(copies)[: len(good)] == good
    letters = contents(broker.address, "shop.dead-letters")
    assert [each.value() for each in letters[:20]] == [b"no order"] * 20
    told = json.loads(output("status", str(path), "--json"))
    assert (told["state"], told["error"]) == ("stopped", None)
    broker.stop()


def _run_until_nobody_reads(path: Path, broker: BrokerProcess) -> None:
    """Run it, and leave when it has read all: it ends by itself after its next batch."""
    reading, writing = os.pipe()
    with ChildProcess(*command("run", str(path)), stdout=writing) as process:
        os.close(writing)
        with os.fdopen(reading) as lines, Cluster(broker.address) as cluster:
            assert lines.readline()
            wait_until(lambda: _read_by_all(cluster) == {200}, "all rows in all sinks")
        produce(broker.address, "orders", values(200, 10))
        ended = process.finish()
    assert ended.returncode == 0, ended.stderr
    assert "Exception" not in ended.stderr


def _read_by_all(cluster: Cluster) -> set[int | None]:
    """The offsets up to which the queries have read."""
    place = ("orders", 0)
    sinks = ("table", "copy", "dead-letters")
    return {cluster.committed(f"shop.{sink}", [place])[place] for sink in sinks}


def _newest(home: Path, kind: str) -> int:
    """The number of the last batch that is planned, or finished."""
    folder = home / "checkpoints" / "shop" / "g1" / "table" / kind
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def test_spark_that_does_not_start_is_told_and_leaves_no_topics(
    java: None, broker_of_its_own: BrokerProcess, tmp_path: Path
) -> None:
    address = broker_of_its_own.address
    create_topic(address, "orders")
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(address=address).replace("local[2]", "nowhere"))
    with ChildProcess(*command("run", str(path))) as process:
        done = process.finish()
    assert done.returncode == 1
    assert "Master must either be" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("millstream: Spark does not start: Java has")
    assert "Traceback" not in done.stderr
    with Cluster(address) as cluster:
        assert set(cluster.partitions(None)) == {"orders", PIPELINES_TOPIC}
