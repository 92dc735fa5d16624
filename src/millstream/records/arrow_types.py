"""The columns that a record becomes, named and typed as in Spark's own Kafka source.

Spark compares a batch's schema with the table's exactly, down to the name of a list's element.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from millstream.errors import InvalidRequest

HEADER_KEY = pa.field("key", pa.string())
HEADER_VALUE = pa.field("value", pa.binary())
HEADER = pa.struct([HEADER_KEY, HEADER_VALUE])
HEADERS = pa.list_(pa.field("element", HEADER))

TYPES: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    # 0: the producer's time, 1: the time of the append.
    "timestampType": pa.int32(),
    # Null where a record has none.
    "headers": HEADERS,
}
COLUMNS = tuple(TYPES)

MIN_MICROSECONDS = -(2**63)
MAX_MICROSECONDS = 2**63 - 1


def schema(columns: Iterable[str]) -> pa.Schema:
    """The schema of these columns, in this order. Raises InvalidRequest for an unknown one."""
    return pa.schema([pa.field(name, _type_of(name)) for name in columns])


def _type_of(name: str) -> pa.DataType:
    try:
        return TYPES[name]
    except KeyError:
        raise InvalidRequest(
            f"records have no column {name!r}: choose from {', '.join(COLUMNS)}"
        ) from None
