"""What the README and the guides show of Spark works as it stands there.

All pages share the session and a topic `orders`; each has a folder of its own. What a page takes
for granted (a frame that it calls `customers`, a topic to write to) is made before its first block.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from millstream.cli import main
from millstream.spark.pipeline import session
from millstream.spark.pipeline.declaration import parse
from tests.clients.broker_process import BrokerProcess
from tests.fakes.documents import README, SPARK_PAGES, Block, blocks_of, with_addresses
from tests.spark.pipelines import contents
from tests.spark.records import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

_ORDERS = [
    json.dumps({"id": number, "customer": f"c{number % 2}", "category": "books", "price": 2.5,
                "at": f"2026-01-01T12:0{number}:00Z"}).encode()
    for number in range(4)
]  # fmt: skip


class Follower:
    """Does what a page says, with the session of the tests, in a folder of its own."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, home: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._home = home
        self.names: dict[str, Any] = {"spark": spark}

    def run(self, block: Block) -> None:
        text = with_addresses(block.text, self._broker)
        if block.file is not None:
            (self._home / block.file).write_text(text)
        try:
            {"python": self._python, "sh": self._sh, "sql": self._sql, "yaml": self._yaml}[
                block.language
            ](block, text)
        except BaseException as error:
            error.add_note(f"in the block at {block.place}")
            raise

    def _python(self, block: Block, text: str) -> None:
        for folder in ("lake/", "checkpoints/", "/data/checkpoints/"):
            text = text.replace(f'"{folder}', f'"{self._home}/{folder.lstrip("/")}')
        servers = f'.option("kafka.bootstrap.servers", "{self._broker.address}")'
        text = text.replace('.format("millstream")', f'.format("millstream"){servers}')
        exec(compile("\n" * block.line + text, block.page, "exec"), self.names)
        for query in self._spark.streams.active:
            query.processAllAvailable()
            query.stop()

    def _sql(self, block: Block, text: str) -> None:
        option = f"OPTIONS ('kafka.bootstrap.servers' '{self._broker.address}', "
        self._spark.sql(text.replace("OPTIONS (", option))
        assert self._spark.table("orders").count() == len(_ORDERS)
        self._spark.catalog.dropTempView("orders")

    def _yaml(self, block: Block, text: str) -> None:
        assert parse(text, self._home / "a.yaml", {})[1] == []

    def _sh(self, block: Block, text: str) -> None:
        """Commands of ours, in this process: each would start a Java of its own."""
        for line in text.splitlines():
            program, *words = shlex.split(line, comments=True)
            assert program == "millstream", line
            if words[:2] == ["pipeline", "run"]:
                words.append("--once")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", [program, *words])
                with pytest.raises(SystemExit) as ended:
                    main()
            assert not ended.value.code, line


def _for_lakehouse(spark: SparkSession, home: Path) -> dict[str, Any]:
    exports = home / "exports" / "2024"
    exports.mkdir(parents=True)
    pl.DataFrame({"id": [2, 1], "name": ["b", "a"]}).write_parquet(exports / "a.parquet")
    arriving = home / "arriving"
    arriving.mkdir()
    (arriving / "a.json").write_text('{"customer_id": 1, "name": "ann", "offset": 7}\n')
    customers = spark.readStream.schema("customer_id int, name string, offset bigint").json(
        str(arriving)
    )
    return {"customers": customers, "rows": spark.range(3)}


def _for_sink(spark: SparkSession, home: Path) -> dict[str, Any]:
    arriving = home / "arriving"
    arriving.mkdir()
    (arriving / "a.json").write_text("".join(f"{order.decode()}\n" for order in _ORDERS))
    return {"orders": spark.readStream.schema("id int, customer string").json(str(arriving))}


PREPARED: dict[str, Callable[[SparkSession, Path], dict[str, Any]]] = {
    "docs/guides/lakehouse.md": _for_lakehouse,
    "docs/guides/spark_sink.md": _for_sink,
}


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> None:
    for topic in ("orders", "orders-by-customer"):
        create_topic(broker.address, topic)
    produce(broker.address, "orders", _ORDERS)


@pytest.mark.parametrize("page", [README, *SPARK_PAGES], ids=lambda page: Path(page).stem)
def test_spark_of_a_page_runs(
    spark: SparkSession,
    broker: BrokerProcess,
    topics: None,
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", broker.address)
    monkeypatch.setattr(session, "open_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    follower = Follower(spark, broker, tmp_path)
    if page in PREPARED:
        follower.names |= PREPARED[page](spark, tmp_path)
    for block in blocks_of(page):
        if block.needs_spark and block.not_run is None:
            follower.run(block)
    _check(Path(page).stem, broker, tmp_path)


def _check(page: str, broker: BrokerProcess, home: Path) -> None:
    """What a page has made is what it says."""
    if page == "README":
        texts = pl.read_delta(str(home / "lake" / "orders"))["text"]
        assert sorted(texts) == sorted(order.decode() for order in _ORDERS)
    elif page == "spark_sink":
        assert {m.key() for m in contents(broker.address, "orders-by-customer")} == {b"c0", b"c1"}
    elif page == "lakehouse":
        again = [message.value() for message in contents(broker.address, "orders-again")]
        assert sorted(again) == sorted(_ORDERS)
        assert pl.read_delta(str(home / "lake" / "customers")).rows() == [(1, "ann", 7)]
