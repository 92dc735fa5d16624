"""The folder in which a pipeline remembers how far it has come, and the lock that guards it.

`<checkpoint>/g<generation>/<query>` is Spark's own; `<checkpoint>/lock` is ours. Where the folder
is not on this machine there is no lock: then it is up to the user that a pipeline runs once.
After a crash: the system has let go of the lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.errors import PipelineBusy
from millstream.spark.pipeline.model import Pipeline

_GENERATION = re.compile(r"g(\d+)")


@contextmanager
def locked(pipeline: Pipeline) -> Iterator[None]:
    """Nobody else runs or resets the pipeline meanwhile. Raises PipelineBusy."""
    if not is_local(pipeline):
        yield
        return
    folder = Path(pipeline.checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineBusy(name=pipeline.name, checkpoint=pipeline.checkpoint) from None
        yield
    finally:
        os.close(lock)


def is_local(pipeline: Pipeline) -> bool:
    return "://" not in pipeline.checkpoint


def last_generation(pipeline: Pipeline) -> int:
    """The highest that has left something here; 0 if none has, or if nobody can tell."""
    if not is_local(pipeline) or not Path(pipeline.checkpoint).is_dir():
        return 0
    found = map(_GENERATION.fullmatch, os.listdir(pipeline.checkpoint))
    return max((int(each[1]) for each in found if each), default=0)


def remove(pipeline: Pipeline) -> None:
    """Give back the room of all generations, once a newer one is decided on."""
    if is_local(pipeline):
        for number in range(1, last_generation(pipeline) + 1):
            shutil.rmtree(Path(pipeline.checkpoint) / f"g{number}", ignore_errors=True)
