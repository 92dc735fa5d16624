"""A format of Delta tables whose stream dies at a moment of a batch.

Moments: `task` (a task has staged its rows), `before` (all tasks have, and nothing is committed),
`after` (Delta has the batch, Spark does not know).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from millstream.spark.lake.data_source import DeltaSource
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.writers import StagedTask, StreamWriter


def mortal_source(
    format_name: str, moment: str, batch: int, die: Callable[[], None]
) -> type[DeltaSource]:
    """The class to register; made in a function, so that Spark can send it to other processes."""

    class MortalWriter(StreamWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTask:
            staged = super().write(iterator)
            context = TaskContext.get()
            assert context is not None
            self._pass("task", int(context.getLocalProperty("streaming.sql.batchId") or 0))
            return staged

        def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
            self._pass("before", batchId)
            super().commit(messages, batchId)
            self._pass("after", batchId)

        def _pass(self, here: str, number: int) -> None:
            if (here, number) == (moment, batch):
                die()

    class MortalSource(DeltaSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
            return MortalWriter(LakeOptions.of(dict(self.options)), schema)

    return MortalSource
