"""`format("millstream_delta")`: Delta tables written and read by Spark, with no jar.

    (spark.readStream.format("millstream").option("subscribe", "orders").load()
        .writeStream.format("millstream_delta")
        .option("path", "lake/orders").option("name", "orders-archive")
        .option("checkpointLocation", "checkpoints/orders-archive")
        .start())

What is heavy is imported when it is used: Spark imports this module to find the format, also for
people who never use it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from millstream.errors import InvalidRequest
from millstream.spark.lake.options import LakeOptions

if TYPE_CHECKING:
    from millstream.spark.lake.reader import TableReader
    from millstream.spark.lake.writers import BatchWriter, StreamWriter

FORMAT = "millstream_delta"


class DeltaSource(DataSource):
    """Options: docs/guides/lakehouse.md."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from millstream.spark.lake.reader import open_table

        return StructType.fromJson(json.loads(open_table(self._options).schema().to_json()))

    def reader(self, schema: StructType) -> TableReader:
        from millstream.spark.lake.reader import TableReader

        return TableReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from millstream.spark.lake.writers import BatchWriter

        return BatchWriter(self._options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from millstream.spark.lake.writers import StreamWriter

        if overwrite:
            raise InvalidRequest(
                "output mode 'complete' writes all rows anew with each batch, which this sink does "
                "not: use 'append', or 'update' with option mode=upsert"
            )
        return StreamWriter(self._options, schema)

    @property
    def _options(self) -> LakeOptions:
        return LakeOptions.of(dict(self.options))
