"""Partitions by topic and number, and the shapes in which requests name them."""

from __future__ import annotations

from collections.abc import Iterable

Place = tuple[str, int]


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The numbers of each topic's partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics
