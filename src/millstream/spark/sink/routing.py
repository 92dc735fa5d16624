"""Which partition each row goes to: Kafka's rule.

The column `partition` where it says one; else the key's hash (murmur2, as Kafka's own clients
have it), so that a key stays in one partition and in order; else rows take turns, a whole Arrow
batch at a time, so that record batches are large.

Invariant: rows of one partition stay in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.client.kafka import Place
from millstream.errors import InvalidRequest, UnknownPartition

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)

Rows: TypeAlias = "pa.Array | None"
"""Row numbers; None for all."""


class Router:
    """Routes the rows of one task. `first_turn` differs between tasks, so that they spread."""

    def __init__(
        self, topic: str, partition_count: Callable[[str], int], *, first_turn: int
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._turn = first_turn

    def route(self, batch: pa.RecordBatch) -> Iterator[tuple[Place, Rows]]:
        """The rows of a batch by where they go. Raises UnknownTopic, UnknownPartition."""
        self._turn += 1
        if self._topic:
            yield from self._in_topic(self._topic, batch, None)
            return
        column = batch.column("topic")
        if column.null_count:
            raise InvalidRequest(
                f"{column.null_count} rows have no topic: give each a topic, or set option topic"
            )
        for topic in pc.unique(column):
            rows = pc.indices_nonzero(pc.equal(column, topic)).cast(pa.int64())
            everything = len(rows) == batch.num_rows
            yield from self._in_topic(topic.as_py(), batch, None if everything else rows)

    def _in_topic(
        self, topic: str, batch: pa.RecordBatch, rows: Rows
    ) -> Iterator[tuple[Place, Rows]]:
        count = self._partition_count(topic)
        turn = self._turn % count
        if not batch.num_rows:
            return
        keys = _column(batch, "key", rows)
        told = _column(batch, "partition", rows)
        if count == 1 and told is None:
            yield (topic, 0), rows
            return
        if keys is None and told is None:
            yield (topic, turn), rows
            return
        size = batch.num_rows if rows is None else len(rows)
        chosen = np.full(size, turn, dtype=np.int64)
        if keys is not None:
            has_key = np.asarray(keys.is_valid())
            chosen = np.where(has_key, key_partitions(keys, count), chosen)
        if told is not None:
            _check_partitions(topic, told, count)
            chosen = np.where(np.asarray(told.is_valid()), np.asarray(told.fill_null(0)), chosen)
        yield from _divided(topic, chosen, rows)


def key_partitions(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Where each key belongs; whatever for one that is null."""
    return ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int64)


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """MurmurHash 2 in 32 bits, with Kafka's seed, of every key at once."""
    keys = keys.cast(pa.binary()).fill_null(b"")
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = ends[:-1].astype(np.int64), np.diff(ends)
    data = np.frombuffer(content or b"", dtype=np.uint8)
    hashed = _SEED ^ lengths.astype(np.uint32)
    whole = lengths >> 2
    for word in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > word)
        at = starts[rows] + 4 * word
        k = _word(data, at, 4) * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        hashed[rows] = (hashed[rows] * _M) ^ k
    for left in (1, 2, 3):
        rows = np.flatnonzero((lengths & 3) == left)
        at = starts[rows] + (lengths[rows] - left)
        hashed[rows] = (hashed[rows] ^ _word(data, at, left)) * _M
    hashed = (hashed ^ (hashed >> np.uint32(13))) * _M
    return hashed ^ (hashed >> np.uint32(15))


def _word(
    data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.uint32]:
    word = np.zeros(len(at), dtype=np.uint32)
    for place in range(size):
        word |= data[at + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _column(batch: pa.RecordBatch, name: str, rows: Rows) -> pa.Array | None:
    """None where it is not there, or says nothing."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    if column.null_count == len(column):
        return None
    return column if rows is None else column.take(rows)


def _check_partitions(topic: str, told: pa.Array, count: int) -> None:
    bounds = pc.min_max(told)
    for bound in (bounds["min"].as_py(), bounds["max"].as_py()):
        if bound is not None and not 0 <= bound < count:
            raise UnknownPartition(topic, bound, count=count)


def _divided(topic: str, chosen: npt.NDArray[Any], rows: Rows) -> Iterator[tuple[Place, Rows]]:
    order = np.argsort(chosen, kind="stable")
    numbers, starts = np.unique(chosen[order], return_index=True)
    for number, part in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        mine = pa.array(part, pa.int64())
        yield (topic, number), mine if rows is None else rows.take(mine)
