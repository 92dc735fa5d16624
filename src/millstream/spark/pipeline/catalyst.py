"""What only Spark's own Java objects can tell: the parser, the plan, and what streams may do.

PySpark has no public way to any of it. Everything of that kind is here, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def parse(session: SparkSession, sql: str) -> None:
    """Raises ParseException. Carries out nothing, whatever the SQL says."""
    session._jsparkSession.sessionState().sqlParser().parsePlan(sql)  # noqa: SLF001


def check_streaming(session: SparkSession, frame: DataFrame, output: str) -> None:
    """Raises AnalysisException for what a query with this output could not be started with."""
    jvm = session._jvm  # noqa: SLF001
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[output]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)  # noqa: SLF001


def optimized_plan(frame: DataFrame) -> list[str]:
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    return str(plan.toString()).splitlines()
