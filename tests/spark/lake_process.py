"""A query that writes files of numbers to a Delta table, and dies when it is told to.

    python -m tests.spark.lake_process <home> <append|upsert> <moment> <batch>

Moments: `task` (a task has staged its rows), `before` (all have, and nothing is committed), `after`
(Delta has the batch, Spark does not know), `never`. What dies is the driver with its JVM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from millstream.spark.lake.data_source import DeltaSource
from millstream.spark.lake.options import LakeOptions
from millstream.spark.lake.writers import StagedTask, StreamWriter
from tests.spark.short_session import short_session

NAME = "mortal"


def main() -> None:
    home, mode, moment, batch = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    spark = short_session()
    spark.dataSource.register(mortal_source(moment, batch, os.getpgrp()))
    options = {"mode": mode, "name": NAME, "optimizeEvery": "3", "targetFileSize": "64k"}
    if mode == "upsert":
        options["key"] = "id"
    (
        spark.readStream.schema("id long, word string")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(home / "numbers"))
        .repartition(2)
        .writeStream.format("mortal_delta")
        .options(**options)
        .option("path", str(home / "table"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    spark.stop()


def mortal_source(moment: str, batch: int, group: int) -> type[DeltaSource]:
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
                # The driver and its JVM are of this group, and this process is not.
                os.killpg(group, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)

    class MortalSource(DeltaSource):
        @classmethod
        def name(cls) -> str:
            return "mortal_delta"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
            return MortalWriter(LakeOptions.of(dict(self.options)), schema)

    return MortalSource


if __name__ == "__main__":
    main()
