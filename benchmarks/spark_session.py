"""A Spark session for measures: two cores, in this process's own Java, which ends with it.

What Java says on stderr goes to a file: it is not part of the report.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.spark_toys import ToySink, ToySource
from millstream.spark.environment import prepare_spark

_ROOT = Path(__file__).resolve().parents[1]
CORES = 2
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.log.level": "ERROR",
}


@contextmanager
def spark_session(directory: str, jars: str = "") -> Iterator[SparkSession]:
    """Raises JavaMissing. `jars` are paths with commas between them."""
    prepare_spark()
    # Workers import the toys from where they are.
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with _stderr_in(os.path.join(directory, "java.log")):
        builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmarks")
        for name, value in {**_CONF, **({"spark.jars": jars} if jars else {})}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            for toy in (ToySource, ToySink):
                session.dataSource.register(toy)
            yield session
        finally:
            session.stop()
            _end_java()


def _end_java() -> None:
    """Java ends when nobody holds its stdin any more."""
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _stderr_in(path: str) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
