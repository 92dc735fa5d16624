"""A pipeline told in lines: what it reads, makes and writes, with the types of all columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.spark.pipeline import catalyst
from millstream.spark.pipeline.model import DEAD_LETTERS, Pipeline, Sink
from millstream.spark.pipeline.views import Views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explained(pipeline: Pipeline, views: Views, *, with_plan: bool) -> Iterator[str]:
    once = pipeline.interval_ms is None
    yield f"pipeline {pipeline.name}, {'once' if once else f'every {pipeline.interval_ms} ms'}"
    yield f"checkpoint {pipeline.checkpoint}"
    for source in pipeline.sources:
        topics = source.pattern or ", ".join(source.topics)
        yield f"source {source.name}: {source.format} from {topics}, starting {source.starting}"
        yield from _columns(views.frames[str(source.name).lower()])
    for step in pipeline.steps:
        made = f"by {step.function}" if step.function else "by SQL"
        known = {str(each).lower(): str(each) for each in pipeline.views}
        name = str(step.name)
        needed = pipeline.needed(name) - {name.lower()}
        of = ", ".join(known[each] for each in known if each in needed)
        yield f"step {name}: {made}, of {of}"
        yield from _columns(views.frames[name.lower()])
    for sink in pipeline.sinks:
        yield f"sink {sink.name}: {sink.view} to {_target(sink)}, {sink.output}"
        yield f"    consumer group {pipeline.group(sink.name)}"
        if with_plan:
            yield from _plan(views.frames[str(sink.view).lower()])
    if pipeline.has_dead_letters:
        yield f"rows that do not parse: to topic {pipeline.dead_letter_topic}"
        yield f"    consumer group {pipeline.group(DEAD_LETTERS)}"


def _target(sink: Sink) -> str:
    if sink.kind == "topic":
        return f"topic {sink.target} ({sink.delivery})"
    return f"{sink.kind} {sink.target}".strip()


def _columns(frame: DataFrame) -> Iterator[str]:
    for each in frame.schema.fields:
        yield f"    {each.name} {each.dataType.simpleString()}"


def _plan(frame: DataFrame) -> Iterator[str]:
    for line in catalyst.optimized_plan(frame):
        yield f"    {line}"
