"""Opens the data directory by its catalog: first the log that holds it, then what it says there is.

After a crash: a topic that was being deleted is taken away; a log that the catalog knows and the
disk lacks is created. A topic on disk that no catalog ever knew is opened all the same, to be
adopted by whoever takes over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from millstream.catalog import Catalog, TopicEntry, replay
from millstream.clock import Clock
from millstream.errors import InvalidSetting
from millstream.records import records_of
from millstream.settings.log import LogSettings
from millstream.settings.names import (
    CATALOG_TOPIC,
    OFFSETS_TOPIC,
    SUBSCRIPTIONS_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal_topic,
)
from millstream.settings.overrides import effective
from millstream.settings.storage import StorageSettings
from millstream.storage.data_directory import DataDirectory, TopicLogs
from millstream.storage.filesystem import Filesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.log_walk import batches_of

_INTERNAL_DEFAULTS = LogSettings()

INTERNAL_OVERRIDES: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024**2),
    # The state of a large group is one record.
    "max.message.bytes": str(64 * 1024**2),
}
"""What every topic that holds the broker's own state sets for itself."""

# What is not compacted yet is read at a start: where much is written, segments are small.
OWN_TOPICS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: INTERNAL_OVERRIDES,
    TRANSACTIONS_TOPIC: {**INTERNAL_OVERRIDES, "segment.bytes": str(16 * 1024**2)},
    SUBSCRIPTIONS_TOPIC: {**INTERNAL_OVERRIDES, "segment.bytes": str(4 * 1024**2)},
}
"""What there is besides the catalog, and what each sets for itself."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A data directory, and the catalog that it holds."""

    directory: DataDirectory
    catalog: Catalog
    notes: tuple[str, ...]


def open_data(
    filesystem: Filesystem,
    path: str,
    *,
    storage: StorageSettings,
    defaults: LogSettings,
    clock: Clock,
) -> Opened:
    """Open a data directory with all its logs. Blocks.

    Raises DirectoryLocked, OSError, or CorruptData when the catalog itself cannot be read.
    """
    catalog = Catalog()
    notes: list[str] = []

    def survey(directory: DataDirectory) -> dict[str, TopicLogs]:
        nonlocal catalog
        log = directory.open_first(CATALOG_TOPIC, effective(_INTERNAL_DEFAULTS, INTERNAL_OVERRIDES))
        catalog = replay(_entries(log, storage.max_decompressed_bytes))
        expected = {}
        for entry in catalog.topics.values():
            if entry.is_deleting:
                directory.forget(entry.name, entry.topic_id).run()
                continue
            settings, faults = settings_of(entry, defaults)
            notes.extend(faults)
            expected[entry.name] = TopicLogs(entry.partitions, settings)
        return expected

    directory = DataDirectory(
        filesystem, path, storage=storage, defaults=defaults, clock=clock, survey=survey
    )
    return Opened(directory, catalog, tuple(notes))


def settings_of(entry: TopicEntry, defaults: LogSettings) -> tuple[LogSettings, list[str]]:
    """The settings of a topic's logs, and what is wrong with those that it sets for itself.

    They were checked when they were set, by a version that may have taken others.
    """
    settings = defaults_of(entry.name, defaults)
    with suppress(InvalidSetting):
        return effective(settings, entry.overrides), []
    faults = []
    for name, raw in entry.overrides.items():
        try:
            settings = effective(settings, {name: raw})
        except InvalidSetting as fault:
            faults.append(f"topic {entry.name!r} goes without a setting of its own: {fault}")
    return settings, faults


def defaults_of(topic: str, defaults: LogSettings) -> LogSettings:
    """What a topic's own settings lie over.

    For what holds the broker's own state these are not the defaults, which are meant for the data
    of clients.
    """
    return _INTERNAL_DEFAULTS if is_internal_topic(topic) else defaults


def _entries(log: LocalLog, limit_bytes: int) -> Iterator[tuple[bytes, bytes | None]]:
    for _, batch in batches_of(log, log.start_offset):
        for record in records_of(batch, limit_bytes=limit_bytes):
            yield bytes(record.key or b""), None if record.value is None else bytes(record.value)
