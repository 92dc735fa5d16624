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


def check_partitioning(session: SparkSession, frame: DataFrame, names: list[str]) -> None:
    """Raises AnalysisException for columns that no folders can be made of."""
    jvm = session._jvm  # noqa: SLF001
    assert jvm is not None
    checker = jvm.org.apache.spark.sql.execution.datasources.PartitioningUtils
    columns, is_case_sensitive = jvm.PythonUtils.toSeq(names), False
    schema = frame._jdf.schema()  # noqa: SLF001
    checker.validatePartitionColumn(schema, columns, is_case_sensitive)


def file_names(session: SparkSession, location: str) -> list[str]:
    """Of a folder that Spark reaches; none if it is not there."""
    jvm = session._jvm  # noqa: SLF001
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(location)
    settings = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
    files = path.getFileSystem(settings)
    if not files.exists(path):
        return []
    return [each.getPath().getName() for each in files.listStatus(path)]


def optimized_plan(frame: DataFrame) -> list[str]:
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    return str(plan.toString()).splitlines()
