"""`millstream pipeline`: data pipelines on Spark, each declared in one file.

Spark is imported when a command needs it, so that help comes at once.
"""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.printout import AsJson, print_json, print_lines, print_table
from millstream.cli.remote import default_bootstrap
from millstream.clock import SystemClock
from millstream.errors import AlreadyExists, InvalidPipeline, InvalidRequest, MissingExtra

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster
    from millstream.spark.pipeline.model import Pipeline
    from millstream.spark.pipeline.views import Views

commands = typer.Typer(
    no_args_is_help=True, help="Pipelines: topics in, SQL on Spark, topics and tables out."
)

File = Annotated[Path, typer.Argument(help="The pipeline's YAML file.", metavar="FILE")]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs, like spark://HOST:7077.", show_default="local[*]"),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT of the broker.",
        show_default="the file's, or MILLSTREAM_BOOTSTRAP",
    ),
]

_TIMEOUT_S = 10.0
_REDRAW_MS = 1_000
_LISTED = ("PIPELINE", "STATE", "IN/S", "OUT/S", "ROWS IN", "ROWS OUT", "BAD", "LAG", "HOST", "PID")


@commands.command()
def run(
    file: File,
    *,
    master: Master = None,
    bootstrap: Bootstrap = None,
    once: Annotated[bool, typer.Option("--once", help="Take all that is there, then end.")] = False,
    json: AsJson = False,
) -> None:
    """Run a pipeline, from where it was, until SIGTERM or Ctrl-C: they end it after the batch."""
    pipeline = _declared(file, bootstrap)
    if once:
        pipeline = replace(pipeline, interval_ms=None)
    from millstream.cli.pipeline_view import is_drawn, shown, until_nobody_reads
    from millstream.spark.pipeline import checkpoint, queries
    from millstream.spark.pipeline.registry import Registry
    from millstream.spark.pipeline.runner import Runner
    from millstream.spark.pipeline.session import close_session, open_session
    from millstream.spark.pipeline.spark_log import spark_log

    clock = SystemClock()
    with checkpoint.locked(pipeline), _cluster(pipeline) as cluster:
        registry = Registry(cluster, clock)
        registry.create()
        generation = registry.generation(pipeline.name)
        queries.check_topics(pipeline, cluster)
        is_live = is_drawn(pipeline) and not json
        with shown(is_live=is_live) as tell, spark_log(pipeline, is_file=is_live) as log:
            if is_live:
                # Java takes seconds to start, and longer on a busy machine.
                tell({"pipeline": pipeline.name, "state": "starting", "phase": "starting Spark"})
            session = open_session(pipeline.name, pipeline.spark, master, log=log)
            try:
                if is_live:
                    phase = "checking the file"
                    tell({"pipeline": pipeline.name, "state": "starting", "phase": phase})
                _analysed(pipeline, session)
                queries.ensure_topics(pipeline, cluster)
                stop = threading.Event()
                runner = Runner(
                    pipeline,
                    session,
                    registry,
                    clock,
                    generation=generation,
                    tell=until_nobody_reads(tell, stop.set),
                    tell_every_ms=_REDRAW_MS if is_live else None,
                    stop=stop,
                )
                with _ended_by_signals(runner):
                    runner.run()
            finally:
                close_session(session)


@commands.command()
def validate(file: File, *, master: Master = None) -> None:
    """Find what is wrong in a pipeline's file, with its line. Needs no broker and runs nothing."""
    pipeline = _declared(file, None)
    with _spark(pipeline, master) as session:
        views = _analysed(pipeline, session)
    print_lines(
        f"{file}: good: {len(pipeline.sources)} sources, {len(pipeline.steps)} steps, "
        f"{len(pipeline.sinks)} sinks, {len(views.frames)} views"
    )


@commands.command()
def explain(
    file: File,
    *,
    master: Master = None,
    plan: Annotated[bool, typer.Option("--plan", help="Spark's plan of each query too.")] = False,
) -> None:
    """Show what a pipeline reads, makes and writes, with the types of all columns."""
    pipeline = _declared(file, None)
    with _spark(pipeline, master) as session:
        from millstream.spark.pipeline.explanation import explained

        print_lines(*explained(pipeline, _analysed(pipeline, session), with_plan=plan))


@commands.command("list")
def list_pipelines(*, bootstrap: Bootstrap = None, json: AsJson = False) -> None:
    """List the pipelines that a broker knows of, and how they are doing."""
    found = _published(bootstrap)
    if json:
        for snapshot in found.values():
            print_json(snapshot)
    elif found:
        print_table(_LISTED, [_row(each) for each in found.values()])
    else:
        print_lines("there are no pipelines: `millstream pipeline run FILE` starts one")


@commands.command()
def status(
    name: Annotated[str, typer.Argument(help="A pipeline's name, or its file.")],
    *,
    bootstrap: Bootstrap = None,
    json: AsJson = False,
) -> None:
    """Show how a pipeline is doing, wherever it runs."""
    if name.endswith((".yaml", ".yml")):
        pipeline = _declared(Path(name), bootstrap)
        name, bootstrap = pipeline.name, pipeline.kafka["bootstrap.servers"]
    found = _published(bootstrap)
    if name not in found:
        raise InvalidRequest(
            f"there is no pipeline {name!r}: `millstream pipeline list` shows those that there are"
        )
    if json:
        print_json(found[name])
        return
    from millstream.cli.pipeline_view import described

    print_lines(*described(found[name]))


@commands.command()
def reset(
    file: File,
    *,
    bootstrap: Bootstrap = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Make a pipeline begin anew: its next run reads its sources from their `starting` point.

    What it has written stays, so sinks that only append will hold rows twice.
    """
    pipeline = _declared(file, bootstrap)
    from millstream.spark.pipeline import checkpoint
    from millstream.spark.pipeline.registry import Registry

    if not yes:
        typer.confirm(f"Let pipeline {pipeline.name!r} begin anew?", abort=True)
    clock = SystemClock()
    with checkpoint.locked(pipeline), _cluster(pipeline) as cluster:
        registry = Registry(cluster, clock)
        registry.create()
        known = registry.get(pipeline.name) or {}
        last = max(int(known.get("generation", 1)), checkpoint.last_generation(pipeline))
        snapshot = {**known, "pipeline": pipeline.name, "generation": last + 1}
        snapshot |= {"state": "reset", "at": clock.now_ms()}
        # Decided here: the next run has other checkpoints and other names for its sinks.
        registry.publish(pipeline.name, snapshot)
        checkpoint.remove(pipeline)
    print_lines(f"pipeline {pipeline.name!r} begins anew with its next run")
    for sink in pipeline.sinks:
        if sink.kind == "parquet":
            print_lines(f"move {sink.target} away before that: Spark adds to no other's files")


@commands.command()
def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("pipeline.yaml"),
    *,
    topic: Annotated[str, typer.Option(help="The topic to read.")] = "events",
) -> None:
    """Write a pipeline's file to begin with."""
    from millstream.spark.pipeline.starter import starter

    if file.exists():
        raise AlreadyExists(kind="file", name=str(file))
    try:
        file.write_text(starter(name=file.stem, topic=topic, file=str(file)), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be written: {error.strerror}") from None
    named = shlex.quote(str(file))
    print_lines(f"{file} is written: change it, then `millstream pipeline validate {named}`")


def _declared(file: Path, bootstrap: str | None) -> Pipeline:
    try:
        from millstream.spark.pipeline.declaration import read
    except ModuleNotFoundError as missing:
        raise MissingExtra(what="a pipeline", package=str(missing.name)) from None

    pipeline = read(file)
    if bootstrap is not None:
        pipeline.kafka["bootstrap.servers"] = bootstrap
    return pipeline


def _analysed(pipeline: Pipeline, session: Any) -> Views:
    from millstream.spark.pipeline.analysis import analyse
    from millstream.spark.pipeline.declaration import described

    views = analyse(pipeline, session)
    if views.problems:
        path = pipeline.path
        raise InvalidPipeline(path=str(path), lines=described(path, views.problems))
    return views


@contextmanager
def _spark(pipeline: Pipeline, master: str | None) -> Iterator[Any]:
    from millstream.spark.pipeline.session import close_session, open_session

    session = open_session(pipeline.name, pipeline.spark, master)
    try:
        yield session
    finally:
        close_session(session)


def _cluster(pipeline: Pipeline) -> Cluster:
    from millstream.client.kafka import Cluster, ClusterSettings

    settings = ClusterSettings.from_options(pipeline.kafka)
    return Cluster(replace(settings, timeout_s=min(settings.timeout_s, _TIMEOUT_S)))


def _published(bootstrap: str | None) -> dict[str, dict[str, Any]]:
    from millstream.client.kafka import Cluster
    from millstream.spark.pipeline.progress import as_of
    from millstream.spark.pipeline.registry import Registry

    clock = SystemClock()
    with Cluster(bootstrap or default_bootstrap(), timeout_s=_TIMEOUT_S) as cluster:
        found = Registry(cluster, clock).all()
    now_ms = clock.now_ms()
    return {name: as_of(each, now_ms) for name, each in found.items()}


def _row(snapshot: dict[str, Any]) -> list[object]:
    fields = ("rows_in_per_s", "rows_out_per_s", "rows_in", "rows_out", "bad_rows", "lag")
    return [
        snapshot["pipeline"],
        snapshot["state"],
        *(snapshot.get(field) for field in fields),
        snapshot.get("host"),
        snapshot.get("pid"),
    ]


@contextmanager
def _ended_by_signals(runner: Any) -> Iterator[None]:
    """The first signal ends a run after its batch, the second at once."""

    def end(*_: object) -> None:
        if runner.stop.is_set():
            runner.hurry.set()
        runner.stop.set()

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
