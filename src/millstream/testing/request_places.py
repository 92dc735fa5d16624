"""Which topics and partitions a request touches, and the part of it that is about some of them.

Invariant: what is kept and what is left out, by one question and by its contrary, is the whole
request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from millstream.broker.topics import Topics
from millstream.errors import UnknownTopicId
from millstream.protocol.notation import NO_UUID, Struct
from millstream.testing.fault_rules import Place

Wanted = Callable[[Place], bool]

_TOPICS = ("topics", "v3_and_below_topics", "topic_partitions", "resources", "topic_names")
_NESTED = ("groups", "transactions")
_PARTITIONS = ("partitions", "partition_indexes")
_NUMBERS = ("partition_index", "partition")
_SUBSCRIBED = "subscribed_topic_names"
# Of configurations: they may also be those of brokers or groups.
_TOPIC_RESOURCE = 2
_ALL_PLACES = Place(None)
_NO_TOPIC = ""


class PlaceReader:
    """Reads requests of all APIs that are declared; Produce and Fetch are written by hand."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def places(self, request: Struct, version: int) -> list[Place]:
        """All that a request touches; one that asks for all topics touches all."""
        found: list[Place] = []

        def note(place: Place) -> bool:
            found.append(place)
            return True

        self.part(request, version, note)
        found += [Place(name) for name in getattr(request, _SUBSCRIBED, None) or ()]
        return found

    def part(self, request: Struct, version: int, wanted: Wanted) -> Struct:
        """The request, about the wanted places alone."""
        kept = copy(request)
        for name, field in request.FIELDS.items():
            value = getattr(request, name)
            if not field.exists_in(version):
                continue
            if name in _NESTED and value and isinstance(value[0], Struct):
                setattr(kept, name, [self.part(each, version, wanted) for each in value])
            elif name in _TOPICS and value is None:
                # All topics; or, of a heartbeat, that nothing has changed.
                if name == "topics":
                    wanted(_ALL_PLACES)
            elif name in _TOPICS:
                parts = [self._topic_part(each, wanted) for each in value]
                setattr(kept, name, [each for each in parts if each is not None])
        return kept

    def name_of(self, topic: str | bytes) -> str:
        """The name of a topic, which may be given by its id; that of no topic if there is none."""
        if isinstance(topic, str):
            return topic
        try:
            return self._topics.by_id(topic).name
        except UnknownTopicId:
            return _NO_TOPIC

    def _topic_part(self, topic: Any, wanted: Wanted) -> Any:
        """What is wanted of a topic; None if nothing is."""
        if isinstance(topic, str):
            return topic if wanted(Place(topic)) else None
        if getattr(topic, "resource_type", _TOPIC_RESOURCE) != _TOPIC_RESOURCE:
            return topic if wanted(Place(_NO_TOPIC)) else None
        name = self._name_in(topic)
        field = next((each for each in _PARTITIONS if each in topic.FIELDS), None)
        if field is None:
            return topic if wanted(Place(name)) else None
        partitions = [p for p in getattr(topic, field) if wanted(Place(name, _number(p)))]
        if not partitions:
            return None
        kept = copy(topic)
        setattr(kept, field, partitions)
        return kept

    def _name_in(self, topic: Struct) -> str:
        for field in ("name", "topic", "resource_name"):
            if name := getattr(topic, field, None):
                return str(name)
        return self.name_of(getattr(topic, "topic_id", NO_UUID))


def has_places(request: Struct) -> bool:
    """Whether anything is left of a request."""
    for name in request.FIELDS:
        value: Sequence[Any] = getattr(request, name) or ()
        if name in _TOPICS and value:
            return True
        if name in _NESTED and any(isinstance(v, Struct) and has_places(v) for v in value):
            return True
    return False


def _number(partition: Any) -> int:
    if isinstance(partition, Struct):
        return int(next(getattr(partition, f) for f in _NUMBERS if f in partition.FIELDS))
    return int(partition)
