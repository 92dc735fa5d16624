"""Runs a pipeline: starts its queries, tells how they are doing, and ends them after a batch.

One thread does all of it. It looks at the queries a few times a second; nothing of a pipeline's
result depends on how often. If one query fails, the others are ended too, after their batch: what
is left is a pipeline that is put right and run again.
After a crash: each query goes on from its checkpoint, and its sink takes a repeated batch once.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.errors import NotFound, PipelineFailed, SparkLost, Unavailable
from millstream.spark.environment import other_python_reason
from millstream.spark.pipeline import progress, queries
from millstream.spark.pipeline.model import DEAD_LETTERS, Pipeline
from millstream.spark.pipeline.progress import PipelineProgress, QueryProgress, Report, Snapshot
from millstream.spark.pipeline.registry import Registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_LOOK_S = 0.25
_STOP_LOOK_S = 0.01
_PUBLISH_MS = 1_000
_REPEAT_MS = 10_000
_ENDS_MS = 500

# How often in a row a query may fail to start its processes, each time after at least 10 s.
_STARTS = 10
_SLOW_PYTHON = "Python worker failed to connect back"
_SLOW_REASON = (
    "a Python process took longer to start than the 10 s that Spark waits: the machine is too busy"
)
_OTHER_PYTHON = re.compile(
    r"DATA_SOURCE_NOT_FOUND\].*\bmillstream|No module named '(?:pyspark_)?millstream", re.DOTALL
)
_TERMINATED = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception:\s*", re.DOTALL
)
_OWN_ERROR = re.compile(r"^millstream\.errors\.[\w.]+: ")
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")

Tell = Callable[[Snapshot], None]


def slow_queries(ended: Mapping[str, str], starts: Mapping[str, int]) -> list[str]:
    """Of queries that have ended, by name and error, those to start again.

    Spark did not wait for their processes; on a busy machine that comes and goes.
    """
    return [
        name for name, error in ended.items() if _SLOW_PYTHON in error and starts[name] < _STARTS
    ]


class Runner:
    """One run of a pipeline. `stop` may be set by anyone; setting it twice is no harm."""

    def __init__(
        self,
        pipeline: Pipeline,
        session: SparkSession,
        registry: Registry,
        clock: Clock,
        *,
        generation: int,
        tell: Tell,
        tell_every_ms: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Each piece of news is told, and between them what there is, if that is asked for."""
        self.stop = stop or threading.Event()
        self.hurry = threading.Event()
        """Set to end at once, in the middle of a batch."""
        self._pipeline = pipeline
        self._session = session
        self._registry = registry
        self._clock = clock
        self._tell = tell
        self._tell_every_ms = tell_every_ms
        self._told_ms = 0
        self._running: dict[str, StreamingQuery] = {}
        self._starts = Counter[str]()
        self._published_ms = 0
        self._ends_ms = 0
        self._is_told_of_silence = False
        self.progress = PipelineProgress(
            pipeline=pipeline.name,
            generation=generation,
            started_at=clock.now_ms(),
            file=str(pipeline.path.resolve()),
            host=socket.gethostname(),
            pid=os.getpid(),
            dead_letters=DEAD_LETTERS,
        )

    def run(self) -> None:
        """Until it is stopped, done or failed. Raises PipelineFailed and SparkLost."""
        from py4j.protocol import Py4JError

        try:
            self._run()
        except (Py4JError, ConnectionError):
            lost = SparkLost(name=self._pipeline.name)
            self.progress.state, self.progress.error = progress.FAILED, str(lost)
            raise lost from None
        finally:
            self._report(force=True)

    def _run(self) -> None:
        try:
            self._report(force=True)
            self._start()
            self._watch()
            self._end()
        except BaseException as error:
            self.progress.state = progress.FAILED
            self.progress.error = self.progress.error or str(error)
            self._stop_all()
            raise
        finally:
            self._look()

    def _start(self) -> None:
        queries.check_folders(self._pipeline, self._session, self.progress.generation)
        names = queries.query_names(self._pipeline)
        for number, name in enumerate(names, 1):
            self.progress.queries[name] = QueryProgress(name, self._pipeline.group(name))
            # One after the other: each starts processes, which Spark gives little time to start.
            phase = f"starting query {number} of {len(names)}: {name}"
            while True:
                self.progress.phase = phase
                self._report(has_news=True)
                if not self._wait_for_start(self._start_query(name)):
                    return
                if not self._is_slow(name):
                    break
                phase = f"starting query {number} of {len(names)} again: {name}: {_SLOW_REASON}"
                _log.warning("query %s is started again: %s", name, _SLOW_REASON)
        self.progress.phase = None
        self.progress.state = progress.RUNNING
        self._report(has_news=True)

    def _wait_for_start(self, query: StreamingQuery | None) -> bool:
        """Whether to go on, and not to stop."""
        while (
            query is not None
            and query.isActive
            and query.status["message"].startswith("Initializing")
        ):
            if self.stop.wait(_STOP_LOOK_S):
                return False
            self._report(has_news=self._look())
        return not self.stop.is_set()

    def _is_slow(self, name: str) -> bool:
        """Whether to start a query again because Spark did not wait for its processes."""
        query = self._running.get(name)
        if query is None:
            return self._starts[name] < _STARTS
        return not query.isActive and bool(
            slow_queries({name: str(query.exception() or "")}, self._starts)
        )

    def _start_query(self, name: str) -> StreamingQuery | None:
        """None if Spark did not wait for a Python process that planning the query needs."""
        from pyspark.errors import PySparkException

        generation = self.progress.generation
        self._starts[name] += 1
        try:
            query = queries.start(self._pipeline, self._session, name, generation)
        except PySparkException as error:
            if _SLOW_PYTHON in str(error) and self._starts[name] < _STARTS:
                return None
            reason = reason_of(str(error))
            raise PipelineFailed(name=self._pipeline.name, sink=name, reason=reason) from None
        self._running[name] = query
        return query

    def _watch(self) -> None:
        while not self.stop.wait(_LOOK_S):
            self._report(has_news=self._look())
            # Looked at once: a query that ends meanwhile is judged at the next look.
            ended = {
                name: str(query.exception() or "")
                for name, query in self._running.items()
                if not query.isActive
            }
            again = slow_queries(ended, self._starts)
            for name in again:
                _log.warning("query %s is started again: %s", name, _SLOW_REASON)
                self._start_query(name)
            if not again and (len(ended) == len(self._running) or any(ended.values())):
                return

    def _end(self) -> None:
        failed = self._failed()
        was_stopped = self.stop.is_set() and any(query.isActive for query in self._running.values())
        self.progress.state = progress.STOPPING
        self._report(force=True)
        self._stop_after_batch()
        failed = failed or self._failed()
        if failed:
            name, reason = failed
            self.progress.error = f"{name}: {reason}"
            self.progress.state = progress.FAILED
            raise PipelineFailed(name=self._pipeline.name, sink=name, reason=reason)
        self.progress.state = progress.STOPPED if was_stopped else progress.FINISHED

    def _stop_after_batch(self) -> None:
        """End each query between two batches; where batches leave no gap, after this one."""
        at_batch = {name: self._batch(query) for name, query in self._running.items()}
        left = {name for name, query in self._running.items() if query.isActive}
        while left and not self.hurry.is_set():
            self._report(has_news=self._look())
            for name in sorted(left):
                query = self._running[name]
                is_between = not query.status["isTriggerActive"]
                if is_between or self._batch(query) != at_batch[name] or not query.isActive:
                    query.stop()
                    left.discard(name)
            self.hurry.wait(_STOP_LOOK_S)
        self._stop_all()

    def _stop_all(self) -> None:
        for query in self._running.values():
            if query.isActive:
                query.stop()

    def _failed(self) -> tuple[str, str] | None:
        """The first query that ended with an error, and the error."""
        for name, query in self._running.items():
            error = None if query.isActive else query.exception()
            if error is not None:
                return name, reason_of(str(error))
        return None

    def _batch(self, query: StreamingQuery) -> int:
        last = query.lastProgress
        return -1 if last is None else last.batchId

    def _look(self) -> bool:
        """Take in what Spark has to tell. Whether that was something."""
        now_ms = self._clock.now_ms()
        has_news = False
        for name, query in self._running.items():
            known = self.progress.queries[name]
            last = _report_of(query.lastProgress)
            if last is None or not known.is_new(last):
                continue
            has_news = True
            self._starts[name] = 0
            for each in query.recentProgress:
                report = _report_of(each)
                if report is not None:
                    known.take(report, now_ms)
        return has_news

    def _report(self, *, force: bool = False, has_news: bool = False) -> None:
        now_ms = self._clock.now_ms()
        every_ms = self._tell_every_ms
        is_due = every_ms is not None and now_ms - self._told_ms >= every_ms
        since_ms = now_ms - self._published_ms
        publishes = force or since_ms >= (_PUBLISH_MS if has_news else _REPEAT_MS)
        if not (force or has_news or is_due or publishes):
            return
        self._look_at_ends(now_ms)
        snapshot = self.progress.snapshot(now_ms)
        if force or has_news or is_due:
            self._told_ms = now_ms
            self._tell(snapshot)
        if publishes:
            self._publish(snapshot, now_ms)

    def _look_at_ends(self, now_ms: int) -> None:
        """How far topics go by now: Spark tells only how far they went when it planned a batch."""
        if now_ms - self._ends_ms < _ENDS_MS:
            return
        self._ends_ms = now_ms
        queries = self.progress.queries.values()
        try:
            ends = self._registry.ends({place for query in queries for place in query.read})
        except (Unavailable, NotFound):
            # The queries have patience of their own, and words for what is gone.
            return
        for query in queries:
            query.see_ends(ends)

    def _publish(self, snapshot: Snapshot, now_ms: int) -> None:
        self._published_ms = now_ms
        try:
            self._registry.publish(self._pipeline.name, snapshot)
            self._is_told_of_silence = False
        except Unavailable as error:
            # The queries have patience of their own; that nobody hears of them is no reason to end.
            if not self._is_told_of_silence:
                self._is_told_of_silence = True
                _log.warning("progress is not published, tried again: %s", error)


def _report_of(told: object) -> Report | None:
    text = getattr(told, "json", None)
    if told is None or text is None:
        return None
    report: Report = json.loads(text)
    return report


def reason_of(message: str) -> str:
    """What went wrong, without Spark's account of itself.

    Of a Python worker's traceback the last line says it.
    """
    if _SLOW_PYTHON in message:
        return _SLOW_REASON
    if _OTHER_PYTHON.search(message):
        return other_python_reason()
    message = message.split("=== Streaming Query ===", maxsplit=1)[0]
    # Where one error led to another while it was handled, the first is the cause.
    message = message.split("\nDuring handling of the above", maxsplit=1)[0]
    message = _SQL_STATE.sub("", _TERMINATED.sub("", message)).strip()
    before, found, trace = message.rpartition("Traceback (most recent call last):")
    if found:
        lines = trace.strip("\n").splitlines()
        ends = [number for number, line in enumerate(lines) if not line.startswith(" ")]
        message = "\n".join(lines[ends[0] :]) if ends else before
    return " ".join(_OWN_ERROR.sub("", message).split())
