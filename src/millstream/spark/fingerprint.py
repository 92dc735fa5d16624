"""A fingerprint of rows, whatever their order and however they were divided among tasks.

It tells whether a batch is one that was written before: a query that lost its checkpoint counts its
batches from 0 again, and they need not be the ones of then. It is the sum of a hash of each row, so
that those of parts add up. Two sets of rows that differ have the same one by chance only, once
in 2**64; it does not resist who looks for such sets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

_WRAP = (1 << 64) - 1
_NULL = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xD6E8FEB86659FD93)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

Hashes = npt.NDArray[np.uint64]


@dataclass(slots=True)
class Fingerprint:
    """How many rows there are, and the sum of their hashes."""

    row_count: int = 0
    total_hash: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._grow(batch.num_rows, int(_of_fields(batch.columns, batch.num_rows).sum()))

    @classmethod
    def total(cls, parts: Iterable[Fingerprint]) -> Self:
        whole = cls()
        for part in parts:
            whole._grow(part.row_count, part.total_hash)
        return whole

    def text(self) -> str:
        return f"{self.row_count}-{self.total_hash:016x}"

    def _grow(self, row_count: int, total_hash: int) -> None:
        self.row_count += row_count
        self.total_hash = (self.total_hash + total_hash) & _WRAP


def _of_fields(columns: Iterable[pa.Array], row_count: int) -> Hashes:
    """A hash for each row, of all that it has in some columns."""
    hashes: Hashes = np.zeros(row_count, dtype=np.uint64)
    for column in columns:
        hashes = _mixed(hashes * _STEP + _of_column(column))
    return hashes


def _of_column(column: pa.Array) -> Hashes:
    """A hash for each value."""
    if not len(column):
        return np.zeros(0, dtype=np.uint64)
    hashes = _of_values(column)
    if column.null_count:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        hashes = np.where(is_null, _NULL, hashes)
    return hashes


def _of_values(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), _NULL)
    if pa.types.is_struct(kind):
        return _of_fields(column.flatten(), len(column))
    if pa.types.is_map(kind):
        # Whatever the order of its keys.
        keys, items = _used(column, column.keys), _used(column, column.items)
        return _of_lists(column, _of_fields([keys, items], len(keys)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _of_column(_used(column, column.values))
        return _of_lists(column, _mixed(values + _places(column) * _STEP))
    if _is_text(kind):
        objects = column.to_numpy(zero_copy_only=False)
        hashes: Hashes = pd.util.hash_array(objects, categorize=False)
        return hashes
    if pa.types.is_boolean(kind):
        return _mixed(column.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    return _of_fixed(column, kind.bit_width // 8)


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    return any(kind == each for each in kinds)


def _of_fixed(column: pa.Array, width: int) -> Hashes:
    """Of values that all take the same number of bytes, 1, 2, 4, or a number of eights."""
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    raw = raw[column.offset * width : (column.offset + len(column)) * width]
    words = raw.view(np.dtype(f"<u{min(width, 8)}")).astype(np.uint64)
    hashes: Hashes = np.zeros(len(column), dtype=np.uint64)
    for each in words.reshape(len(column), -1).T:
        hashes = _mixed(hashes * _STEP + each)
    return hashes


def _used(column: Any, children: pa.Array) -> pa.Array:
    """Those of the values that an array of lists has, which may be a part of another."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return children.slice(first, last - first)


def _bounds(column: Any) -> npt.NDArray[np.int64]:
    """Where each list begins among those values, and the last one ends."""
    offsets: npt.NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    offsets -= offsets[0]
    return offsets


def _places(column: Any) -> Hashes:
    """For each value, its place in its list."""
    bounds = _bounds(column)
    places = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return places.astype(np.uint64)


def _of_lists(column: Any, values: Hashes) -> Hashes:
    """A hash for each list, of the hashes of its values."""
    bounds = _bounds(column)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)])
    lengths = np.diff(bounds).astype(np.uint64)
    return _mixed(sums[bounds[1:]] - sums[bounds[:-1]] + lengths * _STEP)


def _mixed(hashes: Hashes) -> Hashes:
    """Every bit of each depends on all of its bits."""
    hashes = hashes + _NULL
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _FIRST
    hashes = (hashes ^ (hashes >> np.uint64(27))) * _SECOND
    mixed: Hashes = hashes ^ (hashes >> np.uint64(31))
    return mixed
