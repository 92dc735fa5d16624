"""What is told of a Spark that does not start."""

from __future__ import annotations

import pytest

from millstream.spark.pipeline.session import refusal_of

EXITED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
OF_PY4J = """\
An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: External scheduler cannot be instantiated
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3210)
"""
OF_SQL = """\
Error while instantiating 'org.apache.spark.sql.internal.SessionStateBuilder':

JVM stacktrace:
java.lang.IllegalArgumentException: Error while instantiating 'SessionStateBuilder':
\tat org.apache.spark.sql.classic.SparkSession$.instantiate(SparkSession.scala:1)
Caused by: org.apache.spark.SparkIllegalArgumentException: The value 'abc' is no int. SQLSTATE: 1
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:36)
"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (EXITED, "Java has ended at once, with what it says above"),
        (OF_PY4J, "External scheduler cannot be instantiated"),
        (OF_SQL, "The value 'abc' is no int"),
        ("something else\nand more", "something else"),
    ],
)
def test_refusal_is_told_in_one_line(message: str, reason: str) -> None:
    assert refusal_of(message) == reason
