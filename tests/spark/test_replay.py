"""The way back: rows of tables and files as records of a topic, by the command that people type."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from deltalake import write_deltalake

from millstream.cli import main
from millstream.client.kafka import Cluster
from millstream.clock import SystemClock
from millstream.spark.lake.replay import ReplayPlan, replay
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ChildProcess, Finished
from tests.fakes.patience import HANG_S


def run(broker: BrokerProcess, *words: str) -> Finished:
    command = [sys.executable, "-m", "millstream", "replay", "--bootstrap", broker.address, *words]
    with ChildProcess(*command) as process:
        return process.finish()


def read(broker: BrokerProcess, topic: str, partitions: int, count: int) -> list[Message]:
    """All committed records, by a client that is not ours; no more than there should be."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "none", "enable.partition.eof": "true"}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(HANG_S)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found.append(message)
    consumer.close()
    assert len(found) == count
    return found


def test_archived_records_come_back_as_they_were(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for start in (0, 50):
        ids = range(start, start + 50)
        rows = pa.table(
            {
                "key": pa.array([b"k%d" % (i % 5) for i in ids]),
                "value": pa.array([None if i % 10 == 9 else b"v%d" % i for i in ids]),
                "partition": pa.array([i % 3 for i in ids], pa.int32()),
                "offset": pa.array(list(ids), pa.int64()),
                "timestamp": pa.array([at for _ in ids], pa.timestamp("us", "UTC")),
                "headers": pa.array([[{"key": "h", "value": b"x"}] for _ in ids], headers),
            }
        )
        write_deltalake(str(tmp_path / "table"), rows, mode="append")
    done = run(broker, str(tmp_path / "table"), topic, "--partitions", "3", "--keep-partitions")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"100 rows of {tmp_path / 'table'} sent to topic {topic!r}\n"
    records = read(broker, topic, 3, 100)
    for partition in range(3):
        mine = [each for each in records if each.partition() == partition]
        expected = [i for i in range(100) if i % 3 == partition]
        assert [each.value() for each in mine] == [
            None if i % 10 == 9 else b"v%d" % i for i in expected
        ]
        assert [each.key() for each in mine] == [b"k%d" % (i % 5) for i in expected]
        assert {each.timestamp()[1] for each in mine} == {int(at.timestamp() * 1000)}
        assert {str(each.headers()) for each in mine} == {str([("h", b"x")])}


def test_rows_of_files_become_json_in_order(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    for name, ids in (("a", [3, 1]), ("b", [2])):
        at = pa.array([datetime(2024, 1, i, tzinfo=UTC) for i in ids])
        rows = pa.table({"id": ids, "day": [date(2024, 1, i) for i in ids], "at": at})
        # Times as in the files of Spark, which keep no zone.
        pq.write_table(rows, tmp_path / f"{name}.parquet", use_deprecated_int96_timestamps=True)
    words = ["--partitions", "1", "--key", "id", "--order-by", "id", "--json"]
    done = run(broker, str(tmp_path), topic, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"source": str(tmp_path), "topic": topic, "rows": 3}
    records = read(broker, topic, 1, 3)
    assert [each.key() for each in records] == [b"1", b"2", b"3"]
    assert json.loads(records[0].value() or b"") == {
        "id": 1,
        "day": "2024-01-01",
        "at": "2024-01-01T00:00:00",
    }


def test_replay_that_breaks_leaves_nothing_and_can_be_repeated(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"value": [f"v{i}" for i in range(100_000)]}), tmp_path / "f.parquet")
    plan = ReplayPlan(source=str(tmp_path / "f.parquet"), topic=topic)

    def break_off(count: int) -> None:
        if count > 50_000:
            raise KeyboardInterrupt

    with Cluster(broker.address) as cluster:
        cluster.create_topic(topic, 2)
        with pytest.raises(KeyboardInterrupt):
            replay(cluster, plan, clock=SystemClock(), tell=break_off)
        assert read(broker, topic, 2, 0) == []
        assert replay(cluster, plan, clock=SystemClock(), tell=lambda _: None) == 100_000
    values = sorted(int((each.value() or b"v0")[1:]) for each in read(broker, topic, 2, 100_000))
    assert values == list(range(100_000))


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["nothing.parquet"], 3, "there is no Delta table or Parquet file 'nothing.parquet'"),
        (["{file}", "--key", "id"], 1, "--key needs column 'id': {file} has value"),
        (["{file}", "--keep-partitions"], 1, "--keep-partitions needs column 'partition'"),
        (["{file}", "-X", "security"], 2, "-X security: give a name and a value"),
        (["{cut}"], 1, "{cut} cannot be read as Parquet"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    broker: BrokerProcess,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    complaint: str,
) -> None:
    file = str(tmp_path / "f.parquet")
    pq.write_table(pa.table({"value": ["v"]}), file)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes((tmp_path / "f.parquet").read_bytes()[:-20])
    source, *flags = [word.format(file=file, cut=cut) for word in words]
    command = ["millstream", "replay", "--bootstrap", broker.address, source, topic, *flags]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    told = capsys.readouterr().err
    assert told.startswith("millstream: ")
    assert complaint.format(file=file, cut=cut) in told
    assert told.count("\n") == 1
