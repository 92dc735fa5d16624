"""Waiting for the disk, as a future."""

from __future__ import annotations

import asyncio

from millstream.errors import StorageFailure
from millstream.storage.flusher import Flusher
from millstream.storage.partition_log import PartitionLog


def durable(flusher: Flusher, log: PartitionLog, offset: int) -> asyncio.Future[None]:
    """Done once everything below an offset is on disk; StorageFailure if it cannot be."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(failure: StorageFailure | None) -> None:
        if future.cancelled():
            return
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)

    flusher.when_durable(log, offset, settle)
    return future
