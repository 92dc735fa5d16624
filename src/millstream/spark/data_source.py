"""The format `millstream`: topics as tables and streams, to read and to write.

    spark.read.format("millstream").option("subscribe", "orders").load()
    spark.readStream.format("millstream").option("subscribe", "orders").load()
    table.write.format("millstream").option("topic", "orders").save()

Spark makes one of these for each query and carries it to where it is needed, pickled; it holds the
options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from millstream.errors import InvalidOption
from millstream.records.arrow_types import COLUMNS
from millstream.spark.options import SourceOptions, column_names

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
assert tuple(TYPES) == COLUMNS


class MillstreamDataSource(DataSource):
    """Topics of our broker or of Apache Kafka, with the columns of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        return StructType([StructField(name, TYPES[name]) for name in column_names(self.options)])

    def reader(self, schema: StructType) -> DataSourceReader:
        from millstream.spark.batch_reader import BatchReader, PushdownReader

        options = self._source_options(schema, streaming=False)
        return PushdownReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from millstream.spark.stream_reader import StreamReader

        return StreamReader(self._source_options(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from millstream.spark.sink import factory

        return factory.writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from millstream.spark.sink import factory

        return factory.stream_writer(self.options, schema, overwrite)

    def _source_options(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = SourceOptions.parse(self.options, streaming=streaming)
        # A schema that the user gave chooses columns as the option does.
        return replace(options, columns=_columns_of(schema))


def _columns_of(schema: StructType) -> tuple[str, ...]:
    for column in schema.fields:
        if TYPES.get(column.name) != column.dataType:
            kinds = ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
            raise InvalidOption(
                name="schema", value=column.simpleString(), expected=f"some of {kinds}"
            )
    return tuple(schema.fieldNames())
