"""Chooses who does the work per record: compiled code, or Python where that was not built."""

from __future__ import annotations

try:
    from millstream.records._arrow import ColumnBuilder, RowEncoder

    NATIVE = True
except ImportError:
    from millstream.records.arrow_pure import ColumnBuilder, RowEncoder

    NATIVE = False

__all__ = ["NATIVE", "ColumnBuilder", "RowEncoder"]
