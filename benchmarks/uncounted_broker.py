"""Our broker with the counting taken out of produce and fetch: what it would be without metrics.

Run as `python -m benchmarks.uncounted_broker serve ...`, in the place of `python -m millstream`.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.__main__ import main
from millstream.broker.partition import Partition
from millstream.errors import MillstreamError
from millstream.gateways.kafka.request_times import RequestTimes
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog


def _append(
    partition: Partition, batches: Sequence[bytearray | memoryview]
) -> list[int | MillstreamError]:
    log: PartitionLog = partition.log
    return log.append(batches)


def _nothing(*_: object) -> None:
    """In the place of what counts."""


def _zero(*_: object) -> int:
    return 0


def take_out() -> None:
    """Let nothing be counted any more in this process."""
    for owner, name, replacement in (
        (Partition, "append", _append),
        (RequestTimes, "begin", _nothing),
        (RequestTimes, "answered", _nothing),
        (RequestTimes, "answered_after_wait", _nothing),
        (LocalLog, "count_messages", _zero),
    ):
        assert hasattr(owner, name), f"{name} is somewhere else now: take it out there"
        setattr(owner, name, replacement)


if __name__ == "__main__":
    take_out()
    main()
