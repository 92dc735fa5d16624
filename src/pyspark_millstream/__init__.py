"""What Spark looks for by its name: it lets `format("millstream")` work with nothing registered."""

from __future__ import annotations

from millstream.spark.data_source import MillstreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
