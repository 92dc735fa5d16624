"""Streaming queries that tests run to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Spark gives the Python process of a source 10 s to start, whatever its settings are. The product
# starts such a query again too: see spark/pipeline/runner.py.
_SLOW_PYTHON = "Python worker failed to connect back"
_STARTS = 5


def run_to_end(writer: DataStreamWriter) -> None:
    """Process everything that is available. Raises the error of a query that fails."""
    for start in range(1, _STARTS + 1):
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if _SLOW_PYTHON not in str(error) or start == _STARTS:
                raise
        else:
            return
