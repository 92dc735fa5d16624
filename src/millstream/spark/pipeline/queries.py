"""The streaming queries of a pipeline: one for each sink, and one for dead letters.

Each has a checkpoint, a consumer group and a stable name of its own, so that none waits for
another and all go on where they were.
After a crash: Spark repeats the batch that was not finished; the sinks take it once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from millstream.client.kafka import Cluster
from millstream.errors import InvalidPipeline, NoTargetTopic, UnknownTopic
from millstream.spark.pipeline import catalyst, rows
from millstream.spark.pipeline.declaration import described
from millstream.spark.pipeline.document import Problem
from millstream.spark.pipeline.model import DEAD_LETTERS, Pipeline, Sink, Source
from millstream.spark.pipeline.schemas import schema_of
from millstream.spark.pipeline.views import Stream, Views
from millstream.spark.target_topic import ensure_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ROWS, OUT = "rows", "out"
"""The names under which Spark counts what a query puts out."""


def query_names(pipeline: Pipeline) -> list[str]:
    names = [sink.name for sink in pipeline.sinks]
    return [*names, DEAD_LETTERS] if pipeline.has_dead_letters else names


def written_topics(pipeline: Pipeline) -> list[str]:
    """Topics that must be there before anything is written to them."""
    topics = [sink.target for sink in pipeline.sinks if sink.kind == "topic"]
    return [*topics, pipeline.dead_letter_topic] if pipeline.has_dead_letters else topics


def check_topics(pipeline: Pipeline, cluster: Cluster) -> None:
    """Raises InvalidPipeline for topics to read that are not there: once, not in each query."""
    problems = []
    own = set(written_topics(pipeline))
    for source in pipeline.sources:
        for topic in source.topics:
            if topic in own:
                continue
            try:
                cluster.partitions([topic])
            except UnknownTopic:
                note = f"source {str(source.name)!r}: there is no topic {topic!r}: create it first"
                problems.append(Problem(source.name.place, note))
    if problems:
        path = pipeline.path
        raise InvalidPipeline(path=str(path), lines=described(path, problems))


def ensure_topics(pipeline: Pipeline, cluster: Cluster) -> None:
    """Let brokers create the topics that sinks write to.

    Raises InvalidPipeline for those that are not there and that no broker creates by itself. The
    topic for dead letters is the pipeline's own, and created here.
    """
    problems = []
    for sink in pipeline.sinks:
        if sink.kind == "topic":
            try:
                ensure_topic(cluster, sink.target)
            except NoTargetTopic as error:
                problems.append(Problem(sink.place, f"sink {sink.name!r}: {error}"))
    if problems:
        path = pipeline.path
        raise InvalidPipeline(path=str(path), lines=described(path, problems))
    if pipeline.has_dead_letters:
        cluster.create_topic(pipeline.dead_letter_topic, exist_ok=True)


def check_folders(pipeline: Pipeline, session: SparkSession, generation: int) -> None:
    """Raises InvalidPipeline for Parquet files of an earlier beginning.

    Spark numbers the batches of a folder, and leaves out those whose number it finds there: of a
    query that begins anew it would drop rows, and say nothing.
    """

    def has_batches(folder: str) -> bool:
        return any(name[0].isdigit() for name in catalyst.file_names(session, folder))

    problems = []
    for sink in pipeline.sinks:
        if sink.kind != "parquet" or not has_batches(f"{sink.target}/_spark_metadata"):
            continue
        if not has_batches(f"{pipeline.query_checkpoint(sink.name, generation)}/offsets"):
            note = f"sink {sink.name!r}: {sink.target} holds what it wrote before it began anew"
            problems.append(Problem(sink.place, f"{note}: move that away, or name another"))
    if problems:
        path = pipeline.path
        raise InvalidPipeline(path=str(path), lines=described(path, problems))


def start(pipeline: Pipeline, session: SparkSession, name: str, generation: int) -> StreamingQuery:
    """Start one of the queries."""
    own = session.newSession()
    if name == DEAD_LETTERS:
        writer = _dead_letters(pipeline, own, generation)
        return _started(pipeline, DEAD_LETTERS, writer, generation)
    sink = next(each for each in pipeline.sinks if each.name == name)
    views = Views(pipeline, own)
    group = pipeline.group(sink.name)
    views.build(_stream(pipeline, own, group), pipeline.needed(str(sink.view)))
    if views.problems:
        path = pipeline.path
        raise InvalidPipeline(path=str(path), lines=described(path, views.problems))
    writer = _written(pipeline, sink, views.frames[str(sink.view).lower()], generation)
    return _started(pipeline, sink.name, writer, generation)


def source_options(pipeline: Pipeline, source: Source, group: str, columns: str) -> dict[str, str]:
    """What the reader is told. The file's own options come last: they are the user's word."""
    options = {f"kafka.{name}": value for name, value in pipeline.kafka.items()}
    if source.pattern is None:
        options["subscribe"] = ",".join(source.topics)
    else:
        options["subscribePattern"] = source.pattern
    if isinstance(source.starting, int):
        options["startingTimestamp"] = str(source.starting)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = source.starting
    return {**options, "group.id": group, "columns": columns, **source.options}


def sink_options(pipeline: Pipeline, sink: Sink, generation: int) -> dict[str, str]:
    """What the writer is told."""
    name = pipeline.stable_name(sink.name, generation)
    if sink.kind == "topic":
        options = {f"kafka.{key}": value for key, value in pipeline.kafka.items()}
        options |= {"topic": sink.target, "delivery": sink.delivery, "name": name}
    elif sink.kind == "delta":
        options = {"path": sink.target, "name": name}
        if sink.upsert_by:
            options |= {"mode": "upsert", "key": ",".join(map(str, sink.upsert_by))}
        if sink.partition_by:
            options["partitionBy"] = ",".join(map(str, sink.partition_by))
    elif sink.kind == "parquet":
        options = {"path": sink.target}
    else:
        options = {"truncate": "false"}
    return {**options, **sink.options}


def _stream(pipeline: Pipeline, session: SparkSession, group: str) -> Stream:
    def stream(source: Source) -> DataFrame:
        options = source_options(pipeline, source, group, rows.columns(source))
        return session.readStream.format("millstream").options(**options).load()

    return stream


def _written(pipeline: Pipeline, sink: Sink, frame: DataFrame, generation: int) -> DataStreamWriter:
    shaped = topic_rows(sink, frame) if sink.kind == "topic" else frame
    kind = {"topic": "millstream", "delta": "millstream_delta"}.get(sink.kind, sink.kind)
    writer = _counted(shaped).writeStream.outputMode(sink.output)
    if sink.output != "append" and sink.kind in {"topic", "delta"}:
        return writer.foreachBatch(_batch_write(pipeline, sink, kind, generation))
    writer = writer.format(kind)
    if sink.kind == "parquet" and sink.partition_by:
        writer = writer.partitionBy(*map(str, sink.partition_by))
    return writer.options(**sink_options(pipeline, sink, generation))


def _batch_write(
    pipeline: Pipeline, sink: Sink, kind: str, generation: int
) -> Callable[[DataFrame, int], None]:
    """Writes one batch, in place of a stream: Spark lets our streams take only rows that stay.

    A batch that is repeated changes nothing: a topic knows it by its number, and rows of a table
    are replaced by themselves.
    """
    options = sink_options(pipeline, sink, generation)

    def write(batch: DataFrame, number: int) -> None:
        numbered = {"batchId": str(number)} if sink.kind == "topic" else {}
        batch.write.format(kind).mode("append").options(**options, **numbered).save()

    return write


def topic_rows(sink: Sink, frame: DataFrame) -> DataFrame:
    """Rows as records: as they are, or each as a JSON object with the key beside it."""
    from pyspark.sql import functions as f

    if sink.format == "raw":
        return frame
    fields = f.struct(*(f.col(f"`{name}`") for name in frame.columns))
    value = f.to_json(fields, {"ignoreNullFields": "false"}).alias("value")
    if sink.key is None:
        return frame.select(value)
    return frame.select(f.col(f"`{sink.key}`").cast("string").alias("key"), value)


def _dead_letters(pipeline: Pipeline, session: SparkSession, generation: int) -> DataStreamWriter:
    group = pipeline.group(DEAD_LETTERS)
    columns = ",".join([*rows.RAW_COLUMNS, "headers"])
    frames = []
    for source in pipeline.sources:
        if source.can_fail:
            options = source_options(pipeline, source, group, columns)
            raw = session.readStream.format("millstream").options(**options).load()
            frames.append(rows.bad_rows(raw, source, schema_of(source, []), pipeline.name))
    letters = reduce(lambda left, right: left.unionAll(right), frames)
    options = {f"kafka.{name}": value for name, value in pipeline.kafka.items()}
    return (
        _counted(letters)
        .writeStream.format("millstream")
        .options(**options)
        .option("topic", pipeline.dead_letter_topic)
        .option("name", pipeline.stable_name(DEAD_LETTERS, generation))
    )


def _counted(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.observe(ROWS, f.count(f.lit(1)).alias(OUT))


def _started(
    pipeline: Pipeline, query: str, writer: DataStreamWriter, generation: int
) -> StreamingQuery:
    writer = writer.queryName(pipeline.stable_name(query, generation)).option(
        "checkpointLocation", pipeline.query_checkpoint(query, generation)
    )
    if pipeline.interval_ms is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{pipeline.interval_ms} milliseconds").start()
