"""What readers and writers would say of their options, said before they are started."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.errors import InvalidOption, UnknownOption
from millstream.spark.lake.options import LakeOptions
from millstream.spark.options import PREFIX, SourceOptions
from millstream.spark.pipeline import rows
from millstream.spark.pipeline.document import Problem
from millstream.spark.pipeline.model import Pipeline, Settings
from millstream.spark.pipeline.queries import sink_options, source_options
from millstream.spark.sink.options import SinkOptions

Check = Callable[[Mapping[str, str]], object]

_CHECKS: dict[str, Check] = {"topic": SinkOptions.parse, "delta": LakeOptions.of}


def check_options(pipeline: Pipeline) -> list[Problem]:
    """A problem for each source and sink that would refuse its options."""
    problems = []
    for source in pipeline.sources:
        options = source_options(pipeline, source, "group", rows.columns(source))
        title = f"source {str(source.name)!r}"
        problems += _refused(title, pipeline, source.options, _source_check, options)
    for sink in pipeline.sinks:
        if sink.kind in _CHECKS:
            options = sink_options(pipeline, sink, generation=1)
            title = f"sink {sink.name!r}"
            problems += _refused(title, pipeline, sink.options, _CHECKS[sink.kind], options)
    return problems


def _source_check(options: Mapping[str, str]) -> object:
    return SourceOptions.parse(options, streaming=True)


def _refused(
    title: str, pipeline: Pipeline, own: Settings, check: Check, options: Mapping[str, str]
) -> list[Problem]:
    try:
        check(options)
    except (InvalidOption, UnknownOption) as error:
        name = error.name
        if name.startswith(PREFIX) and name not in own:
            return [Problem(pipeline.kafka.place(name.removeprefix(PREFIX)), f"{title}: {error}")]
        return [Problem(own.place(name), f"{title}: {error}")]
    return []
