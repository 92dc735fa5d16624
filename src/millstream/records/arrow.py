"""Record batches to Arrow columns and back, for Spark and other readers of columns.

Batches are walked in `arrow_reader` and made in `arrow_encoder`. What costs per record is done
by `ColumnBuilder` and `RowEncoder`, which come compiled (`_arrow.pyx`) or, where that was not
possible, in Python (`arrow_pure`); `arrow_twin` chooses, and both give the same.
Needs pyarrow, which the rest of this package does not.
"""

from __future__ import annotations

from millstream.records.arrow_encoder import encode
from millstream.records.arrow_reader import ColumnReader
from millstream.records.arrow_twin import NATIVE
from millstream.records.arrow_types import COLUMNS, schema

__all__ = ["COLUMNS", "NATIVE", "ColumnReader", "encode", "schema"]
