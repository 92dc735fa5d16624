"""A file for what Spark's processes write to stderr, where a terminal shows the pipeline instead.

Java and the Python processes that it starts write warnings, and every error twice. The file is
`spark.log` in the pipeline's checkpoint, or in the folder for temporary files if that is remote.
Each run begins it anew.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.errors import PipelineFailed
from millstream.spark.pipeline import checkpoint
from millstream.spark.pipeline.model import Pipeline

_NAME = "spark.log"


class SparkLog:
    """Where what Spark writes goes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Processes that are started meanwhile write their stderr to the file."""
        sys.stderr.flush()
        own = os.dup(2)
        os.dup2(self._descriptor, 2)
        try:
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)


@contextmanager
def spark_log(pipeline: Pipeline, *, is_file: bool) -> Iterator[SparkLog | None]:
    """None if what Spark writes stays on stderr. A failure names the file."""
    if not is_file:
        yield None
        return
    path = _path(pipeline)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        yield SparkLog(path, descriptor)
    except PipelineFailed as error:
        reason = f"{error.reason}; what Spark has written is in {path}"
        raise PipelineFailed(name=error.name, sink=error.sink, reason=reason) from None
    finally:
        os.close(descriptor)


def _path(pipeline: Pipeline) -> Path:
    if checkpoint.is_local(pipeline):
        folder = Path(pipeline.checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / _NAME
    return Path(tempfile.gettempdir()) / f"{pipeline.name}-{_NAME}"
