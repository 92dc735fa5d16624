"""From a pipeline's file to its model, with every problem that can be seen without Spark."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from millstream.errors import InvalidPipeline
from millstream.settings.names import is_internal_topic, is_topic_name
from millstream.spark.pipeline.document import Node, Place, Problem, load
from millstream.spark.pipeline.model import (
    DEAD_LETTERS,
    SINK_KINDS,
    Pipeline,
    Sink,
    Source,
    Step,
    Text,
    Watermark,
)
from millstream.spark.pipeline.rows import PARSER_OPTIONS
from millstream.spark.pipeline.section import Section

_DEFAULT_ADDRESS = "127.0.0.1:9092"
_DEFAULT_INTERVAL_MS = 1000
_MIN_INTERVAL_MS = 100
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)

_TOP = (
    "name",
    "kafka",
    "sources",
    "steps",
    "sinks",
    "dead_letters",
    "trigger",
    "spark",
    "checkpoint",
)
_SOURCE = (
    "name",
    "topic",
    "pattern",
    "format",
    "schema",
    "watermark",
    "starting",
    "headers",
    "options",
    "parse_options",
)
_STEP = ("name", "sql", "python", "inputs")
_SINK = ("name", "from", *SINK_KINDS, "output", "options")
_OF_KIND = {
    "topic": ("format", "key", "delivery"),
    "delta": ("upsert_by", "partition_by"),
    "parquet": ("partition_by",),
    "console": (),
}


def read(path: Path, variables: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a file. Raises InvalidPipeline with all that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPipeline(path=str(path), lines=[str(error)]) from None
    pipeline, problems = parse(text, path, variables)
    if pipeline is None or problems:
        raise InvalidPipeline(path=str(path), lines=described(path, problems))
    return pipeline


def described(path: Path, problems: list[Problem]) -> list[str]:
    """A line for each, in the order of the file, as compilers write them."""
    return [
        f"{path}:{problem.place.line}:{problem.place.column}: {problem.message}"
        for problem in sorted(problems, key=lambda each: each.place)
    ]


def parse(
    text: str, path: Path, variables: Mapping[str, str] | None = None
) -> tuple[Pipeline | None, list[Problem]]:
    """What the text declares, if it can be told, and what is wrong with it."""
    root, problems = load(text)
    if root is None or not isinstance(root.content, dict):
        if root is not None:
            problems.append(Problem(root.place, "a pipeline is a mapping that begins with `name:`"))
        return None, problems
    return _pipeline(Section(root, "pipeline", problems, variables), path), problems


def _pipeline(top: Section, path: Path) -> Pipeline:
    top.check_names(_TOP)
    name = _pipeline_name(top)
    sources = tuple(_source(each) for each in top.sections("sources", "source", required=True))
    steps = tuple(_step(each) for each in top.sections("steps", "step"))
    _check_views(top, sources, steps)
    views = [str(each.name) for each in sources] + [str(each.name) for each in steps]
    sinks = tuple(_sink(each, views, path) for each in top.sections("sinks", "sink", required=True))
    _check_sink_names(top, sinks)
    _check_folders(top, sinks)
    checkpoint = top.text("checkpoint")
    kafka = top.settings("kafka")
    address = top.variable("MILLSTREAM_BOOTSTRAP", _DEFAULT_ADDRESS)
    kafka.setdefault("bootstrap.servers", address)
    pipeline = Pipeline(
        path=path,
        name=name,
        kafka=kafka,
        sources=sources,
        steps=steps,
        sinks=sinks,
        dead_letter_topic=_dead_letter_topic(top, name),
        interval_ms=_interval_ms(top),
        spark=top.settings("spark"),
        checkpoint=_location(str(checkpoint) if checkpoint else f"checkpoints/{name}", path),
    )
    _check_circles(top, pipeline)
    return pipeline


def _pipeline_name(top: Section) -> str:
    name = top.text("name", required=True)
    if name is None:
        return ""
    if not is_topic_name(name.content):
        top.note(name.place, f"name {name.content!r}: use only a-z A-Z 0-9 . _ -")
    return name.content


def _source(section: Section) -> Source:
    section.check_names(_SOURCE)
    kind = section.choice("format", ("raw", "text", "json"), "raw")
    topics = section.texts("topic")
    for topic in topics:
        _check_topic(section, topic)
    pattern = section.text("pattern", verbatim=True)
    if bool(topics) == bool(pattern):
        section.note(section.node.place, "give it either a 'topic' or a 'pattern' of topics")
    if kind != "json":
        for name in ("schema", "parse_options"):
            if section.has(name):
                section.note(section.place(name), f"{name!r} goes only with `format: json`")
    parse_options = section.settings("parse_options")
    for name in parse_options:
        if name.lower() in PARSER_OPTIONS:
            note = f"parse option {name!r} is the pipeline's own: bad rows are dead letters"
            section.note(parse_options.place(name), note)
    return Source(
        name=_view_name(section),
        topics=tuple(map(str, topics)),
        pattern=str(pattern) if pattern else None,
        format=kind,
        schema=_schema(section) if kind == "json" else None,
        watermark=_watermark(section),
        starting=_starting(section),
        headers=section.flag("headers"),
        options=section.settings("options"),
        parse_options=parse_options,
    )


def _starting(section: Section) -> str | int:
    text = section.text("starting")
    if text is None or text.content in {"earliest", "latest"}:
        return text.content if text else "earliest"
    try:
        moment = datetime.fromisoformat(text.content)
    except ValueError:
        section.note(
            text.place,
            f"starting {text.content!r}: write earliest, latest or a time like 2026-01-31T12:00Z",
        )
        return "earliest"
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def _schema(section: Section) -> Text | tuple[tuple[Text, Text], ...] | None:
    if not section.has("schema"):
        section.note(
            section.place("format"), "JSON needs a 'schema': a mapping from fields to types"
        )
        return None
    if section.is_mapping("schema"):
        return section.fields("schema")
    return section.text("schema", verbatim=True)


def _watermark(section: Section) -> Watermark | None:
    inner = section.section("watermark")
    if inner is None:
        return None
    inner.check_names(("column", "delay"))
    column = inner.text("column", required=True)
    delay_ms = inner.duration_ms("delay", required=True)
    if column is None or delay_ms is None:
        return None
    return Watermark(column=column, delay_ms=delay_ms)


def _step(section: Section) -> Step:
    section.check_names(_STEP)
    sql = section.text("sql", verbatim=True)
    function = section.text("python")
    if (sql is None) == (function is None):
        section.note(section.node.place, "give it either 'sql' or 'python'")
    if function is not None and not _FUNCTION.fullmatch(function.content):
        section.note(function.place, f"python {function.content!r}: write it as `module:function`")
    inputs = section.texts("inputs")
    if function is not None and not inputs:
        section.note(
            section.place("python"), "a Python step needs 'inputs': views that it is given"
        )
    if sql is not None and inputs:
        section.note(section.place("inputs"), "'inputs' are for Python steps: SQL names its own")
    return Step(name=_view_name(section), sql=sql, function=function, inputs=inputs)


def _sink(section: Section, views: list[str], path: Path) -> Sink:
    kinds = [kind for kind in SINK_KINDS if section.has(kind)]
    if len(kinds) != 1:
        said = f"not {' and '.join(kinds)}" if kinds else f"one of {', '.join(SINK_KINDS)}"
        section.note(section.node.place, f"it must have one place for its rows: {said}")
    kind = kinds[0] if kinds else "console"
    section.check_names((*_SINK, *_OF_KIND[kind]))
    view = section.text("from", required=True)
    if view is not None:
        _check_known(section, view, views)
    name = section.text("name")
    if name is not None and not is_topic_name(name.content):
        section.note(name.place, f"name {name.content!r}: use only a-z A-Z 0-9 . _ -")
    view = view or Text("", Node("", section.node.place))
    upsert_by = section.texts("upsert_by")
    output = section.choice("output", ("append", "update", "complete"), "append")
    if output != "append" and (kind == "parquet" or (kind == "delta" and not upsert_by)):
        section.note(section.place("output"), f"{kind} takes only rows that stay: `output: append`")
    return Sink(
        name=str(name) if name else f"{view}-{kind}",
        place=name.place if name else section.node.place,
        kind=kind,
        view=view,
        target=_target(section, kind, path) if kinds else "",
        output=output,
        output_place=section.place("output"),
        format=section.choice("format", ("json", "raw"), "json"),
        key=section.text("key"),
        delivery=section.choice("delivery", ("exactly-once", "at-least-once"), "exactly-once"),
        upsert_by=upsert_by,
        partition_by=section.texts("partition_by"),
        options=section.settings("options"),
    )


def _target(section: Section, kind: str, path: Path) -> str:
    if kind == "console":
        if not section.flag("console"):
            section.note(section.place("console"), "write it as `console: true`, or leave it out")
        return ""
    target = section.text(kind, required=True)
    if target is None:
        return ""
    if kind == "topic":
        _check_topic(section, target)
        return target.content
    return _location(target.content, path)


def _dead_letter_topic(top: Section, name: str) -> str:
    topic = top.text("dead_letters")
    if topic is None:
        return f"{name}.{DEAD_LETTERS}"
    _check_topic(top, topic)
    return topic.content


def _interval_ms(top: Section) -> int | None:
    if not top.has("trigger"):
        return _DEFAULT_INTERVAL_MS
    if not top.is_mapping("trigger"):
        text = top.text("trigger")
        if text is not None and text.content != "once":
            note = f"trigger {text.content!r}: write `once` or `{{interval: 2 seconds}}`"
            top.note(text.place, note)
        return None
    inner = top.section("trigger")
    assert inner is not None
    inner.check_names(("interval",))
    interval_ms = inner.duration_ms("interval", required=True)
    if interval_ms is not None and interval_ms < _MIN_INTERVAL_MS:
        inner.note(inner.place("interval"), f"it must be at least {_MIN_INTERVAL_MS} ms")
    return interval_ms or _DEFAULT_INTERVAL_MS


def _view_name(section: Section) -> Text:
    name = section.text("name", required=True)
    if name is None:
        return Text("", section.node)
    if not _VIEW_NAME.fullmatch(name.content):
        section.note(
            name.place, f"name {name.content!r}: it is a view of SQL, use only a-z A-Z 0-9 _"
        )
    return name


def _check_views(top: Section, sources: tuple[Source, ...], steps: tuple[Step, ...]) -> None:
    """Names are used once; Python steps are given what comes before them."""
    seen: dict[str, Place] = {}
    declared: list[Source | Step] = [*sources, *steps]
    for each in declared:
        name = str(each.name)
        if name and name.lower() in seen:
            line = seen[name.lower()].line
            top.note(each.name.place, f"the name {name!r} is taken: it is used in line {line}")
        if isinstance(each, Step):
            for view in each.inputs:
                _check_known(top, view, list(seen), of=f"step {name!r}: ")
        seen.setdefault(name.lower(), each.name.place)


def _check_known(section: Section, view: Text, views: list[str], of: str = "") -> None:
    if view.content.lower() in {each.lower() for each in views}:
        return
    there = ", ".join(each for each in views if each) or "none"
    section.note(view.place, f"{of}there is no view {view.content!r} here: there are {there}")


def _check_sink_names(top: Section, sinks: tuple[Sink, ...]) -> None:
    seen: dict[str, Place] = {DEAD_LETTERS: Place(0, 0)}
    for sink in sinks:
        if sink.name == DEAD_LETTERS:
            top.note(sink.place, f"{DEAD_LETTERS!r} is the name of the query for bad rows")
        elif sink.name in seen:
            top.note(
                sink.place,
                f"two sinks are called {sink.name!r} (the other in line {seen[sink.name].line}): "
                "give one of them a 'name'",
            )
        seen.setdefault(sink.name, sink.place)


def _check_folders(top: Section, sinks: tuple[Sink, ...]) -> None:
    """Spark numbers the batches of a folder, and drops those of a second query as known."""
    seen: dict[str, Place] = {}
    for sink in sinks:
        if sink.kind == "parquet" and sink.target in seen:
            line = seen[sink.target].line
            note = f"sink {sink.name!r} writes to the folder of the sink in line {line}"
            top.note(sink.place, f"{note}: choose another")
        if sink.kind == "parquet":
            seen.setdefault(sink.target, sink.place)


def _check_circles(top: Section, pipeline: Pipeline) -> None:
    """Rows that came back as what they were made of would come back for ever."""
    told: set[int] = set()
    for number, sink in enumerate(pipeline.sinks):
        note = f"sink {sink.name!r} writes to topic {sink.target!r}, which"
        for source in _read_back(pipeline, sink, by=sink):
            top.note(sink.place, f"{note} it reads as {str(source.name)!r}: choose another topic")
        circle = _circle(pipeline, number)
        if len(circle) > 1 and told.isdisjoint(circle):
            others = " and ".join(repr(pipeline.sinks[each].name) for each in circle[1:])
            top.note(sink.place, f"{note} comes back to it by sink {others}: choose another topic")
        told |= set(circle)
    letters = pipeline.dead_letter_topic
    for source in pipeline.sources:
        if source.can_fail and source.reads(letters):
            note = f"source {str(source.name)!r} reads {letters!r}, the topic of its dead letters"
            top.note(source.name.place, f"{note}: choose another with 'dead_letters'")


def _circle(pipeline: Pipeline, first: int) -> list[int]:
    """The sinks by which rows of one come back to it, from itself on; none if they do not."""
    seen: set[int] = set()
    paths = [[first]]
    while paths:
        path = paths.pop(0)
        for number, sink in enumerate(pipeline.sinks):
            if number in seen or not _read_back(pipeline, pipeline.sinks[path[-1]], by=sink):
                continue
            if number == first:
                return path
            seen.add(number)
            paths.append([*path, number])
    return []


def _read_back(pipeline: Pipeline, written: Sink, *, by: Sink) -> list[Source]:
    """The sources by which one sink sends on what another has written to a topic."""
    if written.kind != "topic" or by.kind != "topic":
        return []
    needed = pipeline.needed(str(by.view))
    return [
        source
        for source in pipeline.sources
        if str(source.name).lower() in needed and source.reads(written.target)
    ]


def _check_topic(section: Section, topic: Text) -> None:
    if not is_topic_name(topic.content):
        section.note(
            topic.place, f"{topic.content!r} is no name of a topic: use only a-z A-Z 0-9 . _ -"
        )
    elif is_internal_topic(topic.content):
        section.note(topic.place, f"topic {topic.content!r} is the broker's own: choose another")


def _location(location: str, path: Path) -> str:
    """A path is taken from where the file is, so that it is the same wherever it is run from."""
    if _URI.match(location):
        return location
    return posixpath.normpath(str((path.parent.resolve() / location).as_posix()))
