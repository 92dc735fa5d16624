"""Which copies of a partition a client may ask for: one, on the one broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millstream.broker.broker import NODE_ID
from millstream.gateways.kafka.error_codes import ErrorCode

Refusal = tuple[int, str]
"""A code of Kafka's, and what to tell a person."""


def refuse_assignments(broker_ids: Iterable[Sequence[int]]) -> Refusal | None:
    """Why partitions cannot lie where a client wants them; None when they can."""
    for ids in broker_ids:
        if list(ids) != [NODE_ID]:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas on brokers {list(ids)}: there is only broker {NODE_ID}",
            )
    return None
