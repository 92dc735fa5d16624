"""What is wrong with a pipeline's file, and what stops a pipeline that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, Unavailable


@dataclass(eq=False, kw_only=True)
class InvalidPipeline(InvalidRequest):
    """A pipeline's file says what cannot be run. Each line says where, and what to do."""

    path: str
    lines: Sequence[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.path} is no pipeline that can run:", *self.lines])


@dataclass(eq=False, kw_only=True)
class PipelineBusy(Conflict):
    """Another process runs the pipeline."""

    name: str
    checkpoint: str

    def __str__(self) -> str:
        return (
            f"pipeline {self.name!r} is running already (its checkpoint {self.checkpoint} is "
            "locked): stop that one first"
        )


@dataclass(eq=False, kw_only=True)
class PipelineFailed(Conflict):
    """A query of a pipeline ended with an error. What it had finished stays finished."""

    name: str
    sink: str
    reason: str

    def __str__(self) -> str:
        return (
            f"pipeline {self.name!r} stopped: its sink {self.sink!r} failed: {self.reason}\n"
            "fix the cause and run it again: it continues where it stopped"
        )


@dataclass(eq=False, kw_only=True)
class SparkRefused(InvalidRequest):
    """Spark cannot be started as a pipeline's file or its master say."""

    reason: str

    def __str__(self) -> str:
        return f"Spark does not start: {self.reason}: see `spark` in the file, and --master"


@dataclass(eq=False, kw_only=True)
class SparkLost(Unavailable):
    """Spark itself ended while a pipeline ran."""

    name: str

    def __str__(self) -> str:
        return (
            f"pipeline {self.name!r} stopped: Spark's process has ended (was it killed, or out of "
            "memory? `spark.driver.memory` in the file gives it more)\n"
            "run it again: it goes on where it was"
        )
