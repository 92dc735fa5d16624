"""Partition logs and the engines behind them."""

from __future__ import annotations

from millstream.storage.data_directory import DataDirectory
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_log import PartitionLog, SyncTask, TimedOffset

__all__ = [
    "DataDirectory",
    "LocalLog",
    "PartitionLog",
    "SyncTask",
    "TimedOffset",
]
