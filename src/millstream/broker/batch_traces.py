"""The trace that a batch is part of: that of its first record, for a batch is sent as one.

Only a broker that traces reads it, and for that has to unpack a compressed batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidRequest
from millstream.records.batch_reader import records_of
from millstream.telemetry.tracing import trace_in

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def batch_trace(batch: ReadableBuffer, *, limit_bytes: int) -> dict[str, str]:
    """Empty where there is none, or where the batch cannot be read: others say so."""
    try:
        first = next(records_of(batch, limit_bytes=limit_bytes), None)
    except InvalidRequest:
        return {}
    return {} if first is None else trace_in(first.headers)
