"""The Spark session that a pipeline runs in."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import MissingExtra, SparkRefused
from millstream.spark.environment import prepare_spark
from millstream.spark.pipeline import catalyst
from millstream.spark.pipeline.spark_log import SparkLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("pyspark", "pyarrow", "yaml")
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # Processes may be slow to start on a busy machine.
    "spark.python.authenticate.socketTimeout": "60s",
    # State need not fit into the memory of Java.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def check_packages() -> None:
    """Raises MissingExtra, before something less clear does."""
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(what="a pipeline", package=package)


def close_session(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        session.stop()
    except (Py4JError, ConnectionError):
        # Java is gone: there is nothing left to stop.
        return


def open_session(
    name: str, settings: Mapping[str, str], master: str | None, *, log: SparkLog | None = None
) -> SparkSession:
    """A session as the pipeline's file wants it. Raises JavaMissing, SparkRefused."""
    check_packages()
    prepare_spark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Errors of analysis are told by us, with their lines; so is the loss of Java.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(logger).disabled = True
    chosen = {**_DEFAULTS, **settings}
    if master is not None:
        chosen["spark.master"] = master
    chosen.setdefault("spark.master", "local[*]")
    # Spark's own way of telling what it does would be drawn over the view.
    logs = Path(__file__).with_name("log4j2.properties").as_uri()
    own = chosen.get("spark.driver.extraJavaOptions", "")
    options = f"-Dlog4j2.configurationFile={logs} {own}".strip()
    chosen["spark.driver.extraJavaOptions"] = options
    if chosen["spark.master"].startswith("local"):
        # Nothing but this machine needs to reach the driver.
        chosen.setdefault("spark.driver.host", "127.0.0.1")
        chosen.setdefault("spark.driver.bindAddress", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        with _java_deaf_to_sigterm(), log.inherited() if log else nullcontext():
            session = builder.getOrCreate()
        # Settings of SQL are looked at when they are first needed.
        catalyst.parse(session, "SELECT 1")
    except (PySparkException, Py4JError) as error:
        place = "above" if log is None else f"in {log.path}"
        raise SparkRefused(reason=refusal_of(str(error), place=place)) from None
    return session


def refusal_of(message: str, *, place: str = "above") -> str:
    """What is wrong, of all that Java tells: its last cause, or else its first words."""
    if "JAVA_GATEWAY_EXITED" in message:
        return f"Java has ended at once, with what it says {place}"
    found = re.findall(r"^(?:Caused)? ?(?:by)?: (.+)$", message, re.MULTILINE)
    reason = found[-1] if found else message.strip().splitlines()[0]
    return re.sub(r"^[\w.$]+(?:Exception|Error): |\s*SQLSTATE: \w+$", "", reason).rstrip(".")


@contextmanager
def _java_deaf_to_sigterm() -> Iterator[None]:
    """Spark's process must outlive a SIGTERM that is meant for the pipeline.

    Supervisors and shells send it to all processes of a group. Spark would drop its batch at once.
    PySpark keeps SIGINT from Java in the same way. Java ends when this process does.
    """
    _starting.add(os.getpid())
    try:
        yield
    finally:
        _starting.discard(os.getpid())


def _ignore_sigterm() -> None:
    if os.getppid() in _starting:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


_starting: set[int] = set()
os.register_at_fork(after_in_child=_ignore_sigterm)
