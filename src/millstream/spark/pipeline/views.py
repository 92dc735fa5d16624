"""Sources and steps of a pipeline as views of a Spark session, in the order of the file.

The same code makes the views that are only analysed and those that run, so that what was found
good is what runs. A session of its own keeps the views of one query from those of others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from millstream.spark.pipeline import catalyst, rows
from millstream.spark.pipeline.analysis_error import problem_at, problem_of, said
from millstream.spark.pipeline.document import Problem
from millstream.spark.pipeline.model import Pipeline, Source, Step, Text
from millstream.spark.pipeline.schemas import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Stream = Callable[[Source], "DataFrame"]
"""Makes the stream of a source's records."""


class Views:
    """The frames of a pipeline, by name in lower case, and what is wrong with those missing."""

    def __init__(self, pipeline: Pipeline, session: SparkSession) -> None:
        self.pipeline = pipeline
        self.session = session
        self.frames: dict[str, DataFrame] = {}
        self.broken: set[str] = set()
        self.problems: list[Problem] = []

    def build(self, stream: Stream, only: set[str] | None = None) -> dict[str, DataFrame]:
        """Make the views, or those named. What is wrong is noted, and all else still made."""
        for source in self.pipeline.sources:
            if only is None or str(source.name).lower() in only:
                self._add(source.name, self._source(source, stream))
        for step in self.pipeline.steps:
            if only is None or str(step.name).lower() in only:
                self._add(step.name, self._step(step))
        return self.frames

    def _add(self, name: Text, frame: DataFrame | None) -> None:
        key = name.content.lower()
        if frame is None:
            self.broken.add(key)
            return
        frame.createOrReplaceTempView(name.content)
        self.frames[key] = frame

    def _source(self, source: Source, stream: Stream) -> DataFrame | None:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import TimestampNTZType, TimestampType

        before = len(self.problems)
        schema = schema_of(source, self.problems)
        if len(self.problems) > before:
            return None
        title = f"source {str(source.name)!r}"
        place = source.name.place
        try:
            frame = rows.good_rows(stream(source), source, schema)
            if source.watermark is None:
                return frame
            title, place = f"{title}, watermark", source.watermark.column.place
            column = source.watermark.column.content
            if column not in frame.columns:
                there = ", ".join(frame.columns)
                note = f"{title}: there is no column {column!r}: there are {there}"
                self.problems.append(Problem(place, note))
                return None
            if not isinstance(frame.schema[column].dataType, TimestampType | TimestampNTZType):
                kind = frame.schema[column].dataType.simpleString()
                note = f"{title}: column {column!r} is a {kind}: it must be a timestamp"
                self.problems.append(Problem(place, note))
                return None
            return frame.withWatermark(column, f"{source.watermark.delay_ms} milliseconds")
        except PySparkException as error:
            self.problems.append(problem_at(error, place, title=title))
            return None

    def _step(self, step: Step) -> DataFrame | None:
        return self._sql(step, step.sql) if step.sql is not None else self._function(step)

    def _sql(self, step: Step, sql: Text) -> DataFrame | None:
        from pyspark.errors import PySparkException

        title = f"step {str(step.name)!r}"
        prefix = f"CREATE OR REPLACE TEMPORARY VIEW `{step.name}` AS "
        try:
            # Parsed as a view first, because Spark would carry out a command at once.
            catalyst.parse(self.session, prefix + sql.content)
        except PySparkException as error:
            self.problems.append(problem_of(error, sql, title=title, prefix=prefix))
            return None
        try:
            return self.session.sql(sql.content)
        except PySparkException as error:
            missing = self._missing_view(error)
            if missing not in self.broken:
                problem = problem_of(error, sql, title=title)
                note = f"{title}: {self._hint(step, missing)}" if missing else problem.message
                self.problems.append(Problem(problem.place, note))
            return None

    def _hint(self, asking: Step, missing: str) -> str:
        for step in self.pipeline.steps:
            if missing == str(step.name).lower():
                line = step.name.place.line
                if step is asking:
                    return "it cannot be made of itself"
                if str(asking.name).lower() in self.pipeline.needed(missing):
                    return f"{missing!r}, in line {line}, is made of it: one must do without"
                return f"{missing!r} is made only in line {line}: move it before this one"
        there = ", ".join(sorted({*self.frames, *self.broken}))
        return f"there is no view {missing!r}: there are {there}"

    def _missing_view(self, error: Exception) -> str:
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException):
            return ""
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return ""
        parameters = error.getMessageParameters() or {}
        return str(parameters.get("relationName", "")).strip("`").lower()

    def _function(self, step: Step) -> DataFrame | None:
        assert step.function is not None
        names = [str(each).lower() for each in step.inputs]
        if any(name in self.broken for name in names):
            return None
        title = f"step {str(step.name)!r}: {step.function}"
        try:
            result = self._imported(step.function)(*(self.frames[name] for name in names))
        except Exception as error:
            # Outer edge of a user's function: whatever it raises is told with its line.
            note = f"{title} failed: {type(error).__name__}: {_said(error)}"
            self.problems.append(Problem(step.function.place, note))
            return None
        if not hasattr(result, "createOrReplaceTempView"):
            note = f"{title} returned {type(result).__name__}, not a DataFrame"
            self.problems.append(Problem(step.function.place, note))
            return None
        return cast("DataFrame", result)

    def _imported(self, function: Text) -> Callable[..., object]:
        """A function by its path. Modules beside the file are found, here and by executors."""
        module_name, _, name = function.content.partition(":")
        folder = self.pipeline.path.parent.resolve()
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        module = importlib.import_module(module_name)
        file = getattr(module, "__file__", None)
        if file and file.startswith(f"{folder}/") and "." not in module_name:
            self.session.sparkContext.addPyFile(file)
        found: Callable[..., object] = getattr(module, name)
        return found


def _said(error: Exception) -> str:
    from pyspark.errors import PySparkException

    return said(error) if isinstance(error, PySparkException) else str(error)
