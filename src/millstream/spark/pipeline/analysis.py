"""What Spark's analyser says of a pipeline, with no broker and before anything runs."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING

from millstream.errors import InvalidRequest
from millstream.spark.lake.options import LakeOptions
from millstream.spark.pipeline import catalyst
from millstream.spark.pipeline.analysis_error import problem_at
from millstream.spark.pipeline.document import Problem
from millstream.spark.pipeline.model import Pipeline, Sink, Text
from millstream.spark.pipeline.option_check import check_options
from millstream.spark.pipeline.queries import topic_rows
from millstream.spark.pipeline.rows import empty_stream
from millstream.spark.pipeline.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAW_COLUMNS = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def analyse(pipeline: Pipeline, session: SparkSession) -> Views:
    """The views of a pipeline over streams that are empty, with all problems of the file."""
    views = Views(pipeline, session.newSession())
    views.build(lambda source: empty_stream(views.session, source))
    views.problems += check_options(pipeline)
    for sink in pipeline.sinks:
        frame = views.frames.get(str(sink.view).lower())
        if frame is not None:
            _check_sink(sink, frame, views)
    return views


def _check_sink(sink: Sink, frame: DataFrame, views: Views) -> None:
    title = f"sink {sink.name!r}"
    before = len(views.problems)
    for column in (*([sink.key] if sink.key else []), *sink.upsert_by, *sink.partition_by):
        _check_column(column, frame, title, views.problems)
    if sink.kind == "topic" and sink.format == "raw":
        _check_raw(sink, frame, views.problems)
    if sink.kind != "console":
        _check_twice(sink, frame, views.problems)
    if len(views.problems) == before:
        _check_rows(sink, frame, views)
    _check_output(sink, frame, views)


def _check_column(column: Text, frame: DataFrame, title: str, problems: list[Problem]) -> None:
    if column.content in frame.columns:
        return
    near = difflib.get_close_matches(column.content, frame.columns, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(frame.columns)}"
    problems.append(
        Problem(column.place, f"{title}: there is no column {column.content!r}: {hint}")
    )


def _check_raw(sink: Sink, frame: DataFrame, problems: list[Problem]) -> None:
    """A raw view says itself what is written, with columns that the sink knows."""
    title = f"sink {sink.name!r}: a view that is written raw"
    kinds = {each.name: each.dataType.simpleString() for each in frame.schema.fields}
    if "value" not in kinds:
        problems.append(Problem(sink.view.place, f"{title} needs a column 'value'"))
    for name, kind in kinds.items():
        allowed = _RAW_COLUMNS.get(name)
        if allowed is None:
            there = ", ".join(_RAW_COLUMNS)
            note = f"{title} cannot have a column {name!r}: there are {there}"
            problems.append(Problem(sink.view.place, note))
        elif kind not in allowed:
            note = f"{title} has a column {name!r} of {kind}: make it {' or '.join(allowed)}"
            problems.append(Problem(sink.view.place, note))


def _check_twice(sink: Sink, frame: DataFrame, problems: list[Problem]) -> None:
    counts = Counter(name.lower() for name in frame.columns)
    twice = ", ".join(repr(name) for name, count in counts.items() if count > 1)
    if twice:
        note = f"sink {sink.name!r}: view {str(sink.view)!r} has more than one column {twice}"
        problems.append(Problem(sink.view.place, f"{note}: name what it selects"))


def _check_rows(sink: Sink, frame: DataFrame, views: Views) -> None:
    """Whether rows of these types can go there: what the writer asks when a query starts."""
    from pyspark.errors import PySparkException

    title = f"sink {sink.name!r}"
    place = sink.partition_by[0].place if sink.partition_by else sink.view.place
    try:
        if sink.kind == "topic":
            topic_rows(sink, frame)
        elif sink.kind == "delta":
            _check_delta(sink, frame)
        elif sink.kind == "parquet":
            names = [str(each) for each in sink.partition_by]
            catalyst.check_partitioning(views.session, frame, names)
    except PySparkException as error:
        views.problems.append(problem_at(error, place, title=title))
    except (InvalidRequest, ValueError) as error:
        views.problems.append(Problem(place, f"{title}: {error}"))


def _check_delta(sink: Sink, frame: DataFrame) -> None:
    """Raises InvalidRequest, and ValueError for a type that Delta has not."""
    from deltalake import Schema

    from millstream.spark.lake.table import LakeTable
    from millstream.spark.lake.writers import delta_schema_json

    columns = {"partitionBy": ",".join(map(str, sink.partition_by))} if sink.partition_by else {}
    options = LakeOptions.of({"path": sink.target, **columns})
    LakeTable(options, Schema.from_json(delta_schema_json(frame.schema))).check_columns()


def _check_output(sink: Sink, frame: DataFrame, views: Views) -> None:
    """Whether rows of this kind can be put out in this way: what Spark asks when a query starts."""
    from pyspark.errors import PySparkException

    title = f"sink {sink.name!r}"
    if not frame.isStreaming:
        note = f"{title}: view {str(sink.view)!r} reads no source: a query on it would never run"
        views.problems.append(Problem(sink.view.place, note))
        return
    try:
        catalyst.check_streaming(views.session, frame, sink.output)
    except PySparkException as error:
        views.problems.append(problem_at(error, sink.output_place, title=title))
