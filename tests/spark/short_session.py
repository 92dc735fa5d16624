"""A Spark session of a process that is about to be killed."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millstream.spark.environment import prepare_spark
from tests.spark.conftest import SESSION


def short_session() -> SparkSession:
    """As the tests' own, but smaller."""
    prepare_spark()
    builder = SparkSession.builder.master("local[2]")
    small = {"spark.driver.memory": "512m", "spark.ui.showConsoleProgress": "false"}
    for name, value in {**SESSION, **small}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
