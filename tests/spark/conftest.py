"""One Spark session and one broker for all tests on Spark.

Java is slow to start and takes much memory, so that all these tests run in one process and share a
session. Each keeps to topics, groups and folders of its own. What must kill a driver starts a
script in a process of its own (see tests/fakes/lanes.py).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.spark.environment import prepare_spark
from tests.clients.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No session of a test lives long enough for Java's best compiler and collector to pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SESSION = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.log.level": "ERROR",
}

_numbers = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Py4j leaves closing its sockets to the garbage collector.
    unclosed = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(unclosed)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Spark find Java, for tests that start sessions of their own."""
    prepare_spark()
    os.environ["SPARK_HOME"] = str(_home_without_archive(tmp_path_factory.mktemp("spark-home")))


def _home_without_archive(home: Path) -> Path:
    """The installed Spark, but for the archive from which its Python workers import pyspark.

    Python keeps no bytecode for an archive, so each worker compiles pyspark, which takes most of
    its start. Spark gives up on a worker that has not connected after 10 seconds, which is not
    enough on a busy machine. Without the archive, workers import the same pyspark as the driver.
    """
    installed = importlib.util.find_spec("pyspark")
    assert installed is not None
    assert installed.origin is not None
    for part in Path(installed.origin).parent.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    return home


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests share."""
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("millstream-tests")
    for name, value in SESSION.items():
        builder = builder.config(name, value)
    session = builder.config("spark.sql.warehouse.dir", str(home / "warehouse")).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker that other tests use too."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), http="127.0.0.1:0")
    process.start()
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def broker_without_complaints(request: pytest.FixtureRequest) -> Iterator[None]:
    """A broker that complains fails the test that gave it reason to."""
    if "broker" not in request.fixturenames:
        yield
        return
    broker: BrokerProcess = request.getfixturevalue("broker")
    broker.complaints()
    yield
    assert broker.is_running
    assert broker.complaints() == []


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and queries that no other test uses."""
    kept = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{kept.removeprefix('test-')[:150].strip('-')}-{next(_numbers)}"
