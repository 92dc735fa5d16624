"""What a client is allowed to do, as bits in Kafka's answers. Here that is everything."""

from __future__ import annotations

NOT_ASKED = -(2**31)

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def topic_operations(*, asked: bool) -> int:
    return _bits(
        asked,
        (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS),
    )


def cluster_operations(*, asked: bool) -> int:
    return _bits(
        asked,
        (
            _CREATE,
            _ALTER,
            _DESCRIBE,
            _CLUSTER_ACTION,
            _DESCRIBE_CONFIGS,
            _ALTER_CONFIGS,
            _IDEMPOTENT_WRITE,
        ),
    )


def _bits(asked: bool, operations: tuple[int, ...]) -> int:
    return sum(1 << operation for operation in operations) if asked else NOT_ASKED
