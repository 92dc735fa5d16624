"""All topics with their ids, partition counts and settings; the cluster's id; producer ids.

A catalog is an immutable value, made from keyed records of which the newest per key decides:

    topic/<name>    {"id": hex, "partitions": n, "settings": {name: text}, "deleting": true}
    cluster         {"id": text}
    producer-ids    {"next": n}
    settings/broker, settings/group/<name>  {"settings": {name: text}}

`deleting` is only there for a topic that is on its way out: its files may still be there, and must
be taken away before its name is free. Then its key is deleted.

Invariant: names and ids are unique; the state is a function of the records alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.errors import CorruptData, UnknownTopic

_TOPIC_PREFIX = "topic/"
_CLUSTER = "cluster"
_PRODUCER_IDS = "producer-ids"
_SETTINGS_PREFIX = "settings/"


class CatalogRecord(NamedTuple):
    """A change, as it is stored. Without a value it says that the key is gone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """One topic."""

    name: str
    topic_id: bytes
    partitions: int
    overrides: Mapping[str, str]
    is_deleting: bool = False


@dataclass(frozen=True, slots=True)
class Catalog:
    """What there is. Topics that are being deleted are in it until their files are gone."""

    topics: Mapping[str, TopicEntry] = field(default_factory=dict)
    # Names that differ only in . and _ would share one name in metrics, so Kafka allows one.
    folded_names: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""
    next_producer_id: int = 0
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What clients have set for the broker and for groups, by `broker` or `group/<name>`."""

    def topic(self, name: str) -> TopicEntry:
        """Raises UnknownTopic, also for one that is being deleted."""
        entry = self.topics.get(name)
        if entry is None or entry.is_deleting:
            raise UnknownTopic(name)
        return entry


def apply(catalog: Catalog, key: bytes, value: bytes | None) -> Catalog:
    """The catalog after one more record. Raises CorruptData for one that makes no sense."""
    name = _text(key)
    content = _content(key, value)
    if name.startswith(_TOPIC_PREFIX):
        return _with_topic(catalog, name.removeprefix(_TOPIC_PREFIX), content)
    if name == _CLUSTER and content is not None:
        return replace(catalog, cluster_id=_of(key, content, "id", str))
    if name == _PRODUCER_IDS and content is not None:
        return replace(catalog, next_producer_id=_of(key, content, "next", int))
    if name.startswith(_SETTINGS_PREFIX):
        return _with_settings(catalog, key, content)
    # Of a later version, which is then to be asked about it.
    return catalog


def replay(records: Iterable[tuple[bytes, bytes | None]]) -> Catalog:
    """The catalog that records add up to."""
    topics: dict[str, TopicEntry] = {}
    catalog = Catalog()
    for key, value in dict(records).items():
        name = _text(key)
        if not name.startswith(_TOPIC_PREFIX):
            catalog = apply(catalog, key, value)
        elif (content := _content(key, value)) is not None:
            topic = name.removeprefix(_TOPIC_PREFIX)
            topics[topic] = _entry(topic, content)
    return replace(
        catalog,
        topics=topics,
        folded_names={folded(name): name for name in topics},
    )


def folded(name: str) -> str:
    """What names that differ only in . and _ have in common."""
    return name.replace(".", "_")


def topic_record(entry: TopicEntry) -> CatalogRecord:
    content: dict[str, object] = {
        "id": entry.topic_id.hex(),
        "partitions": entry.partitions,
        "settings": dict(entry.overrides),
    }
    if entry.is_deleting:
        content["deleting"] = True
    return CatalogRecord(f"{_TOPIC_PREFIX}{entry.name}".encode(), _encoded(content))


def no_topic_record(name: str) -> CatalogRecord:
    return CatalogRecord(f"{_TOPIC_PREFIX}{name}".encode(), None)


def cluster_record(cluster_id: str) -> CatalogRecord:
    return CatalogRecord(_CLUSTER.encode(), _encoded({"id": cluster_id}))


def producer_ids_record(next_producer_id: int) -> CatalogRecord:
    return CatalogRecord(_PRODUCER_IDS.encode(), _encoded({"next": next_producer_id}))


def settings_record(resource: str, settings: Mapping[str, str]) -> CatalogRecord:
    """Without any, the key is gone."""
    key = f"{_SETTINGS_PREFIX}{resource}".encode()
    return CatalogRecord(key, _encoded({"settings": dict(settings)}) if settings else None)


def _with_settings(catalog: Catalog, key: bytes, content: dict[str, Any] | None) -> Catalog:
    resource = _text(key).removeprefix(_SETTINGS_PREFIX)
    settings = {name: value for name, value in catalog.settings.items() if name != resource}
    if content is not None:
        values = _of(key, content, "settings", dict)
        settings[resource] = {str(name): str(value) for name, value in values.items()}
    return replace(catalog, settings=settings)


def _with_topic(catalog: Catalog, name: str, content: dict[str, Any] | None) -> Catalog:
    topics = dict(catalog.topics)
    names = dict(catalog.folded_names)
    if topics.pop(name, None) is not None:
        names.pop(folded(name), None)
    if content is not None:
        topics[name] = _entry(name, content)
        names[folded(name)] = name
    return replace(catalog, topics=topics, folded_names=names)


def _entry(name: str, content: dict[str, Any]) -> TopicEntry:
    key = f"{_TOPIC_PREFIX}{name}".encode()
    try:
        topic_id = bytes.fromhex(_of(key, content, "id", str))
    except ValueError:
        raise _corrupt(key, "its id is not hexadecimal") from None
    settings = _of(key, content, "settings", dict)
    return TopicEntry(
        name=name,
        topic_id=topic_id,
        partitions=_of(key, content, "partitions", int),
        overrides={str(setting): str(value) for setting, value in settings.items()},
        is_deleting=content.get("deleting") is True,
    )


def _encoded(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _content(key: bytes, value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        content = json.loads(value)
    except ValueError as fault:
        raise _corrupt(key, str(fault)) from None
    if not isinstance(content, dict):
        raise _corrupt(key, "it is not an object")
    return content


def _of(key: bytes, content: dict[str, Any], name: str, kind: type) -> Any:
    value = content.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _corrupt(key, f"its {name} is {value!r}")
    return value


def _corrupt(key: bytes, reason: str) -> CorruptData:
    return CorruptData(path=f"catalog record {_text(key)}", position=0, reason=reason)
