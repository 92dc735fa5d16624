"""The ready pipelines: Spark finds nothing wrong with them, and each makes what it says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from millstream.client.kafka import Cluster
from millstream.spark.pipeline.analysis import analyse
from millstream.spark.pipeline.declaration import described, parse, read
from millstream.spark.pipeline.model import Pipeline
from millstream.spark.pipeline.starter import starter
from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ROOT
from tests.spark.pipelines import contents, run_once
from tests.spark.records import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

EXAMPLES = ROOT / "examples"
FILES = sorted([*(EXAMPLES / "pipelines").glob("*.yaml"), EXAMPLES / "demo" / "pipeline.yaml"])
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_spark_finds_nothing_wrong_with_an_example(spark: SparkSession, path: Path) -> None:
    assert described(path, analyse(read(path, {}), spark).problems) == []


def test_spark_finds_nothing_wrong_with_the_starter(spark: SparkSession) -> None:
    path = Path("a.yaml")
    pipeline, problems = parse(starter(name="a", topic="b", file="a.yaml"), path, {})
    assert pipeline is not None
    assert described(path, problems + analyse(pipeline, spark).problems) == []


class Example:
    """An example that reads and writes topics of its test's own, and ends by itself."""

    def __init__(self, stem: str, prefix: str, home: Path, broker: BrokerProcess) -> None:
        self.home = home
        self._prefix = prefix
        self._address = broker.address
        text = (EXAMPLES / "pipelines" / f"{stem}.yaml").read_text()
        text = re.sub(r"(?m)^name: ", f"name: {prefix}.", text)
        text = re.sub(r"(?m)^( +(?:- )?topic: )", rf"\g<1>{prefix}.", text)
        text = re.sub(r"(?m)^trigger: .*", "trigger: once", text)
        file = home / f"{stem}.yaml"
        file.write_text(text)
        self.pipeline: Pipeline = read(file, {"MILLSTREAM_BOOTSTRAP": broker.address})

    def give(self, topic: str, values: Iterable[bytes], **fields: Any) -> None:
        create_topic(self._address, self.topic(topic))
        produce(self._address, self.topic(topic), values, **fields)

    def topic(self, name: str) -> str:
        return f"{self._prefix}.{name}"

    def records(self, topic: str) -> list[tuple[str | None, Any]]:
        """Keys and values."""
        found = contents(self._address, self.topic(topic))
        return [(each.key() and each.key().decode(), json.loads(each.value())) for each in found]

    def table(self, name: str) -> list[dict[str, Any]]:
        rows = deltalake.DeltaTable(str(self.home / "lake" / name)).to_pyarrow_table()
        return [{key: row[key] for key in sorted(row)} for row in rows.to_pylist()]

    def run(self, spark: SparkSession) -> dict[str, Any]:
        with Cluster(self._address) as cluster:
            last = run_once(self.pipeline, spark, cluster)[-1]
        assert (last["state"], last["lag"]) == ("finished", 0)
        return last


def at(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def order(number: int, seconds: int, **fields: Any) -> bytes:
    whole = {"id": number, "customer": f"c{number % 2}", "category": "books", "price": 2.5}
    return json.dumps({**whole, "quantity": 2, "at": at(seconds), **fields}).encode()


def test_archive_holds_each_order_in_the_folder_of_its_day(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    example = Example("archive_to_delta", topic, tmp_path, broker)
    example.give("orders", [order(1, 0), b"no order", order(2, 86_400)])
    assert example.run(spark)["bad_rows"] == 1
    rows = sorted(example.table("orders"), key=lambda row: row["id"])
    assert [(row["id"], row["day"], row["offset"]) for row in rows] == [
        (1, date(2026, 1, 1), 0),
        (2, date(2026, 1, 2), 2),
    ]
    assert {row["topic"] for row in rows} == {f"{topic}.orders"}
    folders = {path.parent.name for path in (tmp_path / "lake" / "orders").rglob("*.parquet")}
    assert folders == {"day=2026-01-01", "day=2026-01-02"}


def test_dead_letter_of_a_window_is_put_right_and_sent_back(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    example = Example("windowed_revenue", topic, tmp_path, broker)
    wrong = order(4, 200, price="7.25")
    values = [order(1, 0), order(2, 30), order(3, 70, category="toys"), order(5, 200)]
    example.give("orders", [*values, wrong, b"no order"], headers=[("trace", b"t")])
    assert example.run(spark)["bad_rows"] == 2
    # The minute of the last order is not over.
    assert sorted(example.records("revenue"), key=str) == [
        ("books", _minute(0, "books", orders=2, revenue=10.0)),
        ("toys", _minute(60, "toys", orders=1, revenue=5.0)),
    ]

    again = Example("dead_letters_again", topic, tmp_path, broker)
    assert again.run(spark)["rows_in"] == 2
    *_, last = contents(broker.address, f"{topic}.orders")
    assert json.loads(last.value()) == {**json.loads(wrong), "price": 7.25}
    assert last.headers() == [("trace", b"t")]


def _minute(seconds: int, category: str, *, orders: int, revenue: float) -> dict[str, Any]:
    minute = at(seconds).replace("Z", ".000Z")
    return {"minute": minute, "category": category, "orders": orders, "revenue": revenue}


def test_visits_that_are_over_come_out_of_the_state(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLES / "pipelines" / "sessions.py", tmp_path)
    example = Example("sessions", topic, tmp_path, broker)
    clicks = [("ann", minute, f"/{minute % 4}") for minute in range(12)]
    # Ann comes back, Bob looks once; the last click lets everybody know that the time is past.
    clicks += [("ann", 60, "/"), ("bob", 5, "/"), ("cat", 300, "/")]
    example.give(
        "clicks",
        [
            json.dumps({"user": user, "page": page, "at": at(minute * 60)}).encode()
            for user, minute, page in clicks
        ],
    )
    last = example.run(spark)
    assert {query["state_rows"] for query in last["queries"]} == {0, 1}
    visits = sorted(example.table("visits"), key=lambda row: (row["user"], row["start"]))
    assert [(row["user"], row["pages"], row["seen"]) for row in visits] == [
        ("ann", 12, ["/0", "/1", "/2", "/3"]),
        ("ann", 1, ["/"]),
        ("bob", 1, ["/"]),
    ]
    assert (visits[0]["start"], visits[0]["end"]) == (START, START + timedelta(minutes=11 + 30))
    [(key, long_visit)] = example.records("long-visits")
    assert (key, long_visit["user"], long_visit["pages"]) == ("ann", "ann", 12)


def test_orders_meet_their_payments_within_the_hour(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    example = Example("orders_with_payments", topic, tmp_path, broker)
    example.give("orders", [order(1, 0), order(2, 10), order(3, 20)])
    paid = [(1, 60, "card"), (2, 7200, "card"), (3, 20, "cash"), (9, 30, "cash")]
    example.give(
        "payments",
        [
            json.dumps({"order_id": number, "method": how, "paid_at": at(seconds)}).encode()
            for number, seconds, how in paid
        ],
    )
    example.run(spark)
    records = sorted(example.records("paid-orders"), key=str)
    assert [(key, value["id"], value["method"]) for key, value in records] == [
        ("1", 1, "card"),
        ("3", 3, "cash"),
    ]
    rows = sorted(example.table("paid_orders"), key=lambda row: row["id"])
    assert [(row["id"], row["customer"], row["method"], row["paid_at"]) for row in rows] == [
        (1, "c1", "card", START + timedelta(seconds=60)),
        (3, "c1", "cash", START + timedelta(seconds=20)),
    ]
