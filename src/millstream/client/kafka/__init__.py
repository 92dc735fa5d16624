"""A blocking client of Kafka clusters, ours and others, on plain sockets."""

from __future__ import annotations

from millstream.client.kafka.cluster import Cluster
from millstream.client.kafka.group_member import GroupMember
from millstream.client.kafka.offset_lookup import EARLIEST, LATEST
from millstream.client.kafka.partitions_reader import PartitionsReader
from millstream.client.kafka.places import Place
from millstream.client.kafka.producer import Producer
from millstream.client.kafka.reading import Fetched
from millstream.client.kafka.settings import ClusterSettings, Security
from millstream.client.kafka.stream_fetcher import StreamFetcher
from millstream.client.kafka.transactions import (
    ProducerIdentity,
    TransactionDescription,
    Transactions,
)

__all__ = [
    "Cluster",
    "ClusterSettings",
    "Security",
    "Place",
    "EARLIEST",
    "LATEST",
    "Fetched",
    "StreamFetcher",
    "PartitionsReader",
    "GroupMember",
    "Producer",
    "Transactions",
    "ProducerIdentity",
    "TransactionDescription",
]
