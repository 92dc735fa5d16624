"""Sets of partitions, as the consumer protocol names them: by topic id.

Invariant: no topic has an empty set, so two equal sets of partitions are equal mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TopicId = bytes
Partitions = Mapping[TopicId, frozenset[int]]

NO_PARTITIONS: Partitions = {}


def gathered(pairs: Iterable[tuple[TopicId, Iterable[int]]]) -> Partitions:
    """What a message or a record lists, topic by topic."""
    found: dict[TopicId, frozenset[int]] = {}
    for topic_id, numbers in pairs:
        if together := found.get(topic_id, frozenset()).union(numbers):
            found[topic_id] = together
    return found


def listed(partitions: Partitions) -> list[tuple[TopicId, list[int]]]:
    """Topic by topic, in one order whatever the history."""
    return [(topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions)]


def union(left: Partitions, right: Partitions) -> Partitions:
    if not right:
        return left
    if not left:
        return right
    both = dict(left)
    for topic_id, numbers in right.items():
        both[topic_id] = both.get(topic_id, frozenset()) | numbers
    return both


def difference(left: Partitions, right: Partitions) -> Partitions:
    """What is in the left one alone."""
    if not left or not right:
        return left
    rest = ((t, numbers - right.get(t, frozenset())) for t, numbers in left.items())
    return {topic_id: numbers for topic_id, numbers in rest if numbers}


def intersection(left: Partitions, right: Partitions) -> Partitions:
    shared = ((t, numbers & right.get(t, frozenset())) for t, numbers in left.items())
    return {topic_id: numbers for topic_id, numbers in shared if numbers}


def overlaps(left: Partitions, right: Partitions) -> bool:
    return any(not numbers.isdisjoint(right.get(t, ())) for t, numbers in left.items())


def is_subset(inner: Partitions, outer: Partitions) -> bool:
    return all(numbers <= outer.get(t, frozenset()) for t, numbers in inner.items())
