"""Found by Spark itself, by its name: brings `format("millstream_delta")`."""

from __future__ import annotations

from millstream.spark.lake.data_source import DeltaSource as DefaultSource

__all__ = ["DefaultSource"]
