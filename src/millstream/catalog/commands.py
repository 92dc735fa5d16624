"""What can be done to a catalog: each command gives the next one, and the records that make it so.

The runner appends the records and takes over the catalog; whoever only wants to know whether a
command would succeed throws the outcome away. A command that cannot be carried out raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from millstream.catalog.catalog import (
    Catalog,
    CatalogRecord,
    TopicEntry,
    apply,
    cluster_record,
    folded,
    no_topic_record,
    producer_ids_record,
    settings_record,
    topic_record,
)
from millstream.errors import AlreadyExists, InvalidName, InvalidPartitions
from millstream.settings.names import check_topic_name, is_internal_topic
from millstream.settings.overrides import parse_override
from millstream.settings.topics import MAX_PARTITIONS

ReplyT = TypeVar("ReplyT")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ReplyT]):
    """The catalog from now on, the records to append, and what to tell."""

    catalog: Catalog
    records: tuple[CatalogRecord, ...]
    reply: ReplyT


def create_topic(
    catalog: Catalog,
    name: str,
    *,
    topic_id: bytes,
    partitions: int,
    overrides: Mapping[str, str],
    internal: bool = False,
) -> Outcome[TopicEntry]:
    """Raises InvalidName, AlreadyExists, InvalidPartitions or InvalidSetting."""
    check_topic_name(name)
    if is_internal_topic(name) and not internal:
        raise InvalidName(kind="topic", name=name, expected=_NOT_INTERNAL)
    if name in catalog.topics:
        raise AlreadyExists(kind="topic", name=name)
    clash = catalog.folded_names.get(folded(name))
    if clash is not None:
        raise InvalidName(
            kind="topic",
            name=name,
            expected=f"one that differs from that of topic {clash!r} in more than . and _",
        )
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidPartitions(
            topic=name, count=partitions, expected=f"1 to {MAX_PARTITIONS} of them"
        )
    _check_overrides(overrides)
    return _stored(catalog, TopicEntry(name, topic_id, partitions, dict(overrides)))


def adopt_topic(
    catalog: Catalog,
    name: str,
    *,
    topic_id: bytes,
    partitions: int,
    overrides: Mapping[str, str] | None = None,
) -> Outcome[TopicEntry]:
    """Take in a topic that is there already, by whatever way it came.

    Where its settings are not known, nothing of it is deleted until somebody sets its retention.
    """
    before = catalog.topics.get(name)
    if before is not None:
        return _stored(catalog, replace(before, partitions=partitions))
    settings = _ADOPTED if overrides is None else dict(overrides)
    return _stored(catalog, TopicEntry(name, topic_id, partitions, settings))


def begin_delete(catalog: Catalog, name: str, *, internal: bool = False) -> Outcome[TopicEntry]:
    """Say that a topic goes. Its name stays taken until its files are out of the way.

    Raises UnknownTopic or InvalidName.
    """
    entry = catalog.topic(name) if internal else _own_topic(catalog, name)
    return _stored(catalog, replace(entry, is_deleting=True))


def end_delete(catalog: Catalog, name: str) -> Outcome[None]:
    """Free the name of a topic that is gone."""
    return _made(catalog, no_topic_record(name), None)


def add_partitions(catalog: Catalog, name: str, *, total: int) -> Outcome[TopicEntry]:
    """Raises UnknownTopic, InvalidName or InvalidPartitions."""
    entry = _own_topic(catalog, name)
    if not entry.partitions < total <= MAX_PARTITIONS:
        raise InvalidPartitions(
            topic=name,
            count=total,
            expected=f"more than the {entry.partitions} there are, and at most {MAX_PARTITIONS}",
        )
    return _stored(catalog, replace(entry, partitions=total))


def alter_settings(
    catalog: Catalog, name: str, changes: Mapping[str, str | None]
) -> Outcome[TopicEntry]:
    """Set settings of a topic, or with None let the broker's be its own again.

    Raises UnknownTopic, InvalidName or InvalidSetting.
    """
    entry = _own_topic(catalog, name)
    _check_overrides({name: value for name, value in changes.items() if value is not None})
    values = {**entry.overrides, **changes}
    overrides = {name: value for name, value in values.items() if value is not None}
    return _stored(catalog, replace(entry, overrides=overrides))


def alter_resource(
    catalog: Catalog, resource: str, changes: Mapping[str, str | None]
) -> Outcome[Mapping[str, str]]:
    """Set settings of the broker or of a group, or with None take them back.

    The caller has checked them.
    """
    values = {**catalog.settings.get(resource, {}), **changes}
    settings = {name: value for name, value in values.items() if value is not None}
    return _made(catalog, settings_record(resource, settings), settings)


def set_cluster_id(catalog: Catalog, cluster_id: str) -> Outcome[None]:
    return _made(catalog, cluster_record(cluster_id), None)


def allocate_producer_ids(catalog: Catalog, count: int) -> Outcome[range]:
    """Ids that nobody was given before."""
    first = catalog.next_producer_id
    return _made(catalog, producer_ids_record(first + count), range(first, first + count))


_ADOPTED = {"retention.ms": "-1", "retention.bytes": "-1"}
_NOT_INTERNAL = "a name that is not one of the broker's own"


def _own_topic(catalog: Catalog, name: str) -> TopicEntry:
    """A topic that clients may change. Raises UnknownTopic, or InvalidName for the broker's own."""
    entry = catalog.topic(name)
    if is_internal_topic(name):
        raise InvalidName(kind="topic", name=name, expected=_NOT_INTERNAL)
    return entry


def _check_overrides(overrides: Mapping[str, str]) -> None:
    for name, raw in overrides.items():
        parse_override(name, raw)


def _stored(catalog: Catalog, entry: TopicEntry) -> Outcome[TopicEntry]:
    return _made(catalog, topic_record(entry), entry)


def _made(catalog: Catalog, record: CatalogRecord, reply: ReplyT) -> Outcome[ReplyT]:
    # The same function that replays it, so that what is stored and what is known cannot differ.
    return Outcome(apply(catalog, *record), (record,), reply)
