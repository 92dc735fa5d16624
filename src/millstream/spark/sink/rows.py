"""The columns that a topic takes, as in Spark's Kafka sink; all others are left out."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from millstream.errors import InvalidRequest
from millstream.spark.sink.options import SinkOptions

COLUMNS = ("key", "value", "headers", "topic", "partition")

_BYTES = (StringType, BinaryType)


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises InvalidRequest where rows of this schema can not be written."""
    kinds = {column.name: column.dataType for column in schema.fields}
    if "value" not in kinds:
        raise InvalidRequest(
            f"there is no column 'value' to write, only {', '.join(kinds)}: name one so"
        )
    if "topic" not in kinds and not options.topic:
        raise InvalidRequest(
            "there is no topic to write to: set option topic, or give the rows a column 'topic'"
        )
    for name in ("key", "value"):
        if name in kinds and not isinstance(kinds[name], _BYTES):
            raise _wrong(name, kinds[name], "a string or binary")
    if "topic" in kinds and not isinstance(kinds["topic"], StringType):
        raise _wrong("topic", kinds["topic"], "a string")
    if "partition" in kinds and not isinstance(kinds["partition"], IntegerType):
        raise _wrong("partition", kinds["partition"], "an int")
    if "headers" in kinds and not _is_headers(kinds["headers"]):
        raise _wrong("headers", kinds["headers"], "array<struct<key: string, value: binary>>")


def sink_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Only what is written, or says where."""
    names = [name for name in COLUMNS if name in batch.schema.names]
    return batch if names == batch.schema.names else batch.select(names)


def _is_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    parts = kind.elementType
    return (
        parts.fieldNames() == ["key", "value"]
        and isinstance(parts["key"].dataType, StringType)
        and isinstance(parts["value"].dataType, BinaryType)
    )


def _wrong(name: str, kind: DataType, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"column {name!r} is of type {kind.simpleString()}: cast it to {expected}"
    )
