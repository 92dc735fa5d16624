"""The topics that are written to: brokers create them if they are set to do so."""

from __future__ import annotations

from millstream.client.kafka import Cluster
from millstream.errors import NoTargetTopic, UnknownTopic


def ensure_topic(cluster: Cluster, topic: str) -> list[int]:
    """The partitions of a topic to write to. Raises NoTargetTopic."""
    try:
        return cluster.partitions([topic], creates=True)[topic]
    except UnknownTopic:
        raise NoTargetTopic(topic=topic, bootstrap=cluster.settings.bootstrap) from None
