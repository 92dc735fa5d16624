"""The broker's topics: looks them up, creates, changes and deletes them.

A change is made in the catalog first: its record is appended, and only once that is durable does
anything else happen, and only then is anyone told. The files follow the catalog, never the other
way round.

Invariant: a topic that can be looked up is in the catalog and has a partition for each one there.
After a crash: see `opening`; what is left to be mended in the catalog is mended by `start`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from millstream.broker.opening import (
    OWN_TOPICS,
    Opened,
    defaults_of,
    settings_of,
)
from millstream.broker.partition import Partition
from millstream.broker.state_log import StateLog
from millstream.broker.topic_listeners import tell_listeners
from millstream.catalog import Catalog, TopicEntry, commands
from millstream.catalog.commands import Outcome
from millstream.clock import Clock
from millstream.errors import (
    MillstreamError,
    NotFound,
    UnknownPartition,
    UnknownTopic,
    UnknownTopicId,
)
from millstream.settings.log import LogSettings
from millstream.settings.names import CATALOG_TOPIC, is_internal_topic
from millstream.settings.storage import StorageSettings
from millstream.settings.topics import TopicSettings
from millstream.storage.flusher import Flusher
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery_report import RecoveryReport
from millstream.telemetry.traffic import Totals, Traffic

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Topic:
    """A named sequence of partitions."""

    __slots__ = (
        "is_internal",
        "name",
        "overrides",
        "partitions",
        "settings",
        "topic_id",
        "traffic",
        "turn",
    )

    def __init__(self, entry: TopicEntry, settings: LogSettings) -> None:
        self.name = entry.name
        self.topic_id = entry.topic_id
        self.overrides = entry.overrides
        self.settings = settings
        self.is_internal = is_internal_topic(entry.name)
        self.partitions: list[Partition] = []
        self.traffic = Traffic()
        # For who adds or removes files: one at a time.
        self.turn = asyncio.Lock()


class Topics:
    """All topics of the broker."""

    def __init__(
        self,
        opened: Opened,
        flusher: Flusher,
        *,
        settings: TopicSettings,
        storage: StorageSettings,
        defaults: LogSettings,
        clock: Clock,
        new_id: Callable[[], bytes],
        release: Callable[[Sequence[LocalLog]], Awaitable[None]],
    ) -> None:
        """`new_id` gives 16 bytes that nobody had before.

        `release` returns when no thread is at work on logs that are about to go.
        """
        self._directory = opened.directory
        self._catalog: Catalog = opened.catalog
        self._flusher = flusher
        self._settings = settings
        self._storage = storage
        self._defaults = defaults
        self._clock = clock
        self._new_id = new_id
        self._release = release
        self._catalog_log = self._state_log_of(opened.directory.log(CATALOG_TOPIC, 0))
        self.catalog_log = self._catalog_log
        self._topics: dict[str, Topic] = {}
        self.traffic = Totals()
        self._by_id: dict[bytes, Topic] = {}
        self._creating: dict[str, asyncio.Task[Topic]] = {}
        # Held until they are done: the loop itself does not.
        self._under_way: set[asyncio.Task[Any]] = set()
        self.generation = 0
        """Grows with every change, so that others can remember what they found."""
        self.on_changed: list[Callable[[Topic], None]] = []
        """Told of every topic that was created or got more partitions."""
        self.on_deleted: list[Callable[[Topic], None]] = []
        """Told of every topic that is gone; its logs take nothing any more."""
        self.forgetting: list[Callable[[str], Awaitable[None]]] = []
        """Durably forgets what is known under the name of a topic that is gone."""
        for entry in opened.catalog.topics.values():
            if not entry.is_deleting:
                self._add(entry)

    async def start(self) -> list[str]:
        """Mend the catalog and create what the broker needs; returns what people should know."""
        notes, offset = [], 0
        if not self._catalog.cluster_id:
            cluster_id = base64.urlsafe_b64encode(self._new_id()).decode().rstrip("=")
            _, offset = self._append(commands.set_cluster_id(self._catalog, cluster_id))
        for entry in [e for e in self._catalog.topics.values() if e.is_deleting]:
            _, offset = self._append(commands.end_delete(self._catalog, entry.name))
            notes.append(
                f"topic {entry.name!r} was being deleted when the broker stopped: it is gone"
            )
        for name, count in self._directory.partitions().items():
            known = self._catalog.topics.get(name)
            if name != CATALOG_TOPIC and (known is None or known.partitions < count):
                offset = self._adopt(name, count)
                notes.append(
                    f"topic {name!r} was found on disk: adopted with {count} partitions; "
                    "if it is new to the catalog, its data is kept until you set its retention"
                )
        await self._catalog_log.durable(offset)
        for name, overrides in OWN_TOPICS.items():
            if name not in self._topics:
                await self._create(name, partitions=1, overrides=overrides, internal=True)
        return notes

    async def close(self) -> None:
        """Return when nothing that was begun is under way any more."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    # What there is

    @property
    def cluster_id(self) -> str:
        return self._catalog.cluster_id

    @property
    def next_producer_id(self) -> int:
        """All producer ids that were ever given out are below it."""
        return self._catalog.next_producer_id

    @property
    def data_path(self) -> str:
        return self._directory.path

    @property
    def reports(self) -> list[RecoveryReport]:
        """What opening each log found, and what was found since, the broker's own included."""
        return self._directory.reports

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @property
    def defaults(self) -> LogSettings:
        """The settings of a topic that sets none for itself."""
        return self._defaults

    def defaults_of(self, topic: Topic) -> LogSettings:
        """What the topic's own settings lie over."""
        return defaults_of(topic.name, self._defaults)

    def get(self, name: str) -> Topic:
        """Raises UnknownTopic."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def by_id(self, topic_id: bytes) -> Topic:
        """Raises UnknownTopicId."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(topic_id)
        return topic

    def all(self) -> Iterable[Topic]:
        return self._topics.values()

    def partition(self, name: str, number: int) -> Partition:
        """Raises UnknownTopic, or UnknownPartition when the topic has no such partition."""
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        if not 0 <= number < len(topic.partitions):
            raise UnknownPartition(name, number, count=len(topic.partitions))
        return topic.partitions[number]

    def find(self, topic: str | bytes, number: int) -> Partition:
        """A partition by its topic's name or id. Raises UnknownTopic or UnknownTopicId."""
        if isinstance(topic, str):
            return self.partition(topic, number)
        return self.partition(self.by_id(topic).name, number)

    def cut_end(self, name: str, number: int) -> int | None:
        """Where a log ends that a crash may have cut; None for any other."""
        try:
            log = self.partition(name, number).log
        except MillstreamError:
            return None
        return None if log.report.clean else log.end_offset

    def state_log(self, name: str) -> StateLog:
        """The state that one of the broker's own topics holds."""
        return self._state_log_of(self.partition(name, 0).log)

    # Creating

    def check_create(
        self, name: str, *, partitions: int, overrides: Mapping[str, str]
    ) -> LogSettings:
        """Raise what `create` would; returns the settings that the topic would have."""
        outcome = self._creation(name, partitions=partitions, overrides=overrides)
        return settings_of(outcome.reply, self._defaults)[0]

    async def create(self, name: str, *, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """Create a topic; partitions of -1 mean as many as the broker is set to.

        Raises InvalidName, AlreadyExists, InvalidPartitions, InvalidSetting, StorageFailure.
        """
        return await self._create(name, partitions=partitions, overrides=overrides)

    async def ensure(self, name: str, *, partitions: int = -1) -> Topic:
        """The topic of a name, created now if there is none. All who ask at once share it.

        A new one has so many partitions; -1 is as many as the broker is set to.
        Raises what `create` does, UnknownTopic while one of that name is being deleted, and
        TooManyTopics.
        """
        if (topic := self._topics.get(name)) is not None:
            return topic
        if (creation := self._creating.get(name)) is not None:
            return await asyncio.shield(creation)
        if name in self._catalog.topics:
            raise UnknownTopic(name)
        self._settings.check_room(name, count=len(self._catalog.topics))
        return await self._create(name, partitions=partitions, overrides={})

    async def _create(
        self,
        name: str,
        *,
        partitions: int,
        overrides: Mapping[str, str],
        internal: bool = False,
    ) -> Topic:
        entry, offset = self._append(
            self._creation(name, partitions=partitions, overrides=overrides, internal=internal)
        )
        creation = self._begin(self._complete_creation(entry, offset))
        self._creating[name] = creation
        creation.add_done_callback(lambda _: self._creating.pop(name, None))
        return await asyncio.shield(creation)

    def _creation(
        self,
        name: str,
        *,
        partitions: int,
        overrides: Mapping[str, str],
        internal: bool = False,
    ) -> Outcome[TopicEntry]:
        return commands.create_topic(
            self._catalog,
            name,
            topic_id=self._new_id(),
            partitions=self._settings.num_partitions if partitions == -1 else partitions,
            overrides=overrides,
            internal=internal,
        )

    async def _complete_creation(self, entry: TopicEntry, offset: int) -> Topic:
        # Durable: from here on the topic is there after any crash.
        await self._catalog_log.durable(offset)
        settings, _ = settings_of(entry, self._defaults)
        try:
            logs = await asyncio.to_thread(
                self._directory.open_new, entry.name, range(entry.partitions), settings
            )
        except MillstreamError:
            gone, offset = self._append(
                commands.begin_delete(self._catalog, entry.name, internal=True)
            )
            await self._complete_removal(gone, None, offset)
            raise
        self._directory.add(logs)
        topic = self._add(entry)
        # They may have been changed while a thread opened it.
        self._apply(topic, entry)
        if not topic.is_internal:
            _log.info(
                "topic %(topic)s with %(partitions)d partitions is created",
                {"topic": topic.name, "partitions": entry.partitions},
            )
        tell_listeners(self.on_changed, topic)
        return topic

    def _add(self, entry: TopicEntry) -> Topic:
        topic = Topic(entry, settings_of(entry, self._defaults)[0])
        topic.traffic.whole = self.traffic
        topic.partitions += [self._partition(topic, n) for n in range(entry.partitions)]
        self._topics[topic.name] = self._by_id[topic.topic_id] = topic
        return topic

    def _partition(self, topic: Topic, number: int) -> Partition:
        try:
            return Partition(topic, number, self._directory.log(topic.name, number))
        except MillstreamError as failure:
            return Partition(topic, number, None, failure)

    def _adopt(self, name: str, partitions: int) -> int:
        entry, offset = self._append(
            commands.adopt_topic(
                self._catalog,
                name,
                topic_id=self._new_id(),
                partitions=partitions,
                overrides=OWN_TOPICS.get(name),
            )
        )
        missing = []
        for number in range(partitions):
            try:
                self._directory.log(name, number)
            except NotFound:
                missing.append(number)
            except MillstreamError as failure:
                _log.error(
                    "%(topic)s/%(partition)d cannot be opened: %(error)s",
                    {"topic": name, "partition": number, "error": failure},
                )
        settings, _ = settings_of(entry, self._defaults)
        self._directory.add(self._directory.open_new(name, missing, settings))
        self._add(entry)
        return offset

    # Changing

    def check_add_partitions(self, name: str, total: int) -> None:
        """Raise what `add_partitions` would."""
        commands.add_partitions(self._catalog, name, total=total)

    async def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have more partitions. Raises UnknownTopic, InvalidPartitions."""
        topic = self.get(name)
        _, offset = self._append(commands.add_partitions(self._catalog, name, total=total))
        await asyncio.shield(self._begin(self._complete_addition(topic, total, offset)))

    async def _complete_addition(self, topic: Topic, total: int, offset: int) -> None:
        # Durable: from here on the partitions are there after any crash.
        await self._catalog_log.durable(offset)
        async with topic.turn:
            if self._topics.get(topic.name) is not topic:
                raise UnknownTopic(topic.name)
            missing = range(len(topic.partitions), total)
            try:
                logs = await asyncio.to_thread(
                    self._directory.open_new, topic.name, missing, topic.settings
                )
            except MillstreamError as failure:
                # The next start creates them.
                topic.partitions += [Partition(topic, n, None, failure) for n in missing]
                raise
            self._directory.add(logs)
            for number, log in zip(missing, logs, strict=True):
                # They may have been changed while a thread opened it.
                log.reconfigure(topic.settings)
                topic.partitions.append(Partition(topic, number, log))
        tell_listeners(self.on_changed, topic)

    def check_alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Raise what `alter` would."""
        commands.alter_settings(self._catalog, name, changes)

    async def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic, or with None let the broker's be its own again.

        Raises UnknownTopic, InvalidSetting.
        """
        topic = self.get(name)
        entry, offset = self._append(commands.alter_settings(self._catalog, name, changes))
        self._apply(topic, entry)
        await self._catalog_log.durable(offset)

    def reconfigure(self, settings: TopicSettings, defaults: LogSettings) -> None:
        """Let the broker's settings be others, and those of topics that rest on them."""
        self._settings, self._defaults = settings, defaults
        self.generation += 1
        for topic in self._topics.values():
            self._apply(topic, self._catalog.topics[topic.name])

    def _apply(self, topic: Topic, entry: TopicEntry) -> None:
        topic.overrides = entry.overrides
        topic.settings, _ = settings_of(entry, self._defaults)
        for partition in topic.partitions:
            if partition.failure is None:
                partition.log.reconfigure(topic.settings)

    @property
    def settings_by_resource(self) -> Mapping[str, Mapping[str, str]]:
        return self._catalog.settings

    async def alter_resource(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Durably set settings of a resource, which were checked, or with None take them back."""
        _, offset = self._append(commands.alter_resource(self._catalog, resource, changes))
        await self._catalog_log.durable(offset)

    # Deleting

    async def delete_records(self, partition: Partition, before_offset: int) -> int:
        """Durably move the start of a partition up; returns it. Raises OffsetOutOfRange."""
        log = partition.log
        if log.start_offset < before_offset <= log.end_offset:
            # What is deleted must not be lost to a crash first; so the log need not sync it here.
            await self._state_log_of(log).durable(before_offset)
        return log.delete_records(before_offset)

    async def delete(self, name: str) -> None:
        """Raises UnknownTopic, or InvalidName for one of the broker's own."""
        topic = self.get(name)
        entry, offset = self._append(commands.begin_delete(self._catalog, name))
        del self._topics[name], self._by_id[topic.topic_id]
        await asyncio.shield(self._begin(self._complete_removal(entry, topic, offset)))

    async def _complete_removal(self, entry: TopicEntry, topic: Topic | None, offset: int) -> None:
        """Take the files of a topic out of the way, then free its name."""
        # Durable: from here on the topic is gone after any crash.
        await self._catalog_log.durable(offset)
        if topic is None:
            removal = self._directory.forget(entry.name, entry.topic_id)
        else:
            async with topic.turn:
                await self._release([p.log for p in topic.partitions if p.failure is None])
                removal = self._directory.forget(entry.name, entry.topic_id)
            tell_listeners(self.on_deleted, topic)
        try:
            await asyncio.to_thread(removal.run)
            # Durable before the name is free: the next topic of that name inherits nothing.
            for forget in self.forgetting:
                await forget(entry.name)
            self._append(commands.end_delete(self._catalog, entry.name))
            _log.info("topic %(topic)s is deleted", {"topic": entry.name})
        except (OSError, MillstreamError) as error:
            # Its name stays taken; the next start takes away what is left of it.
            _log.error(
                "topic %(topic)s is deleted, but its name is not free: %(error)s",
                {"topic": entry.name, "error": error},
            )

    # Producer ids

    async def allocate_producer_ids(self, count: int) -> range:
        """Ids that nobody was given before, or will be after a crash."""
        ids, offset = self._append(commands.allocate_producer_ids(self._catalog, count))
        # Durable before use: an id that is given twice would mix up two producers.
        await self._catalog_log.durable(offset)
        return ids

    # How it is done

    def _append(self, outcome: Outcome[_T]) -> tuple[_T, int]:
        """Store an outcome and take it over; returns its reply and the offset to wait for."""
        offset = self._catalog_log.append(outcome.records)
        self.generation += 1
        self._catalog = outcome.catalog
        return outcome.reply, offset

    def _begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run to its end what must not stop half-way because a client went away."""
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._settle)
        return task

    def _settle(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None and not isinstance(failure, MillstreamError):
            # A defect: who asked hears of it too, unless they are gone.
            _log.error("changing a topic failed", exc_info=failure)

    def _state_log_of(self, log: LocalLog) -> StateLog:
        return StateLog(
            log,
            self._flusher,
            clock=self._clock,
            max_decompressed_bytes=self._storage.max_decompressed_bytes,
        )
