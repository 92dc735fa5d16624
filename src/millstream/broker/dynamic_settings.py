"""Settings that clients change while the broker runs: its own, and those of groups.

They are kept in the catalog, and hold over what the broker reads from its file.

After a crash: what a client was told is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from millstream.broker.groups import GroupCoordinator
from millstream.broker.topics import Topics
from millstream.errors import InvalidRequest, InvalidSetting
from millstream.settings.dynamic import check_dynamic, overlaid
from millstream.settings.group_overrides import effective_for_group
from millstream.settings.sections import Settings

_log = logging.getLogger(__name__)

_BROKER = "broker"
_GROUP = "group/"

Changes = Mapping[str, str | None]


class DynamicSettings:
    """What clients have set, and how it takes effect."""

    def __init__(self, read: Settings, *, topics: Topics, groups: GroupCoordinator) -> None:
        self.read = read
        """The settings without what clients have set."""
        self._topics = topics
        self._groups = groups
        self._turn = asyncio.Lock()
        self.apply: Callable[[Settings], object] | None = None
        """Takes over settings while the broker runs; None where nothing can."""
        for resource in tuple(topics.settings_by_resource):
            if resource.startswith(_GROUP):
                self._take_group(resource.removeprefix(_GROUP))

    # The broker's own

    @property
    def of_broker(self) -> Mapping[str, str]:
        return self._topics.settings_by_resource.get(_BROKER, {})

    def over(self, read: Settings) -> Settings:
        """Settings that were read, with what clients have set over them."""
        kept = dict(self.of_broker)
        for name, raw in self.of_broker.items():
            try:
                check_dynamic(name, raw)
            except (InvalidSetting, InvalidRequest) as error:
                # Stored by a broker of another version.
                _log.error("a setting that a client made is left out: %(error)s", {"error": error})
                del kept[name]
        return overlaid(read, kept)

    def check_broker(self, changes: Changes) -> Settings:
        """The settings that the broker would have. Raises InvalidSetting or InvalidRequest."""
        if self.apply is None:
            raise InvalidRequest("the settings of this broker cannot change while it runs")
        for name, raw in changes.items():
            if raw is not None:
                check_dynamic(name, raw)
        values = {**self.of_broker, **changes}
        return overlaid(self.read, {n: raw for n, raw in values.items() if raw is not None})

    async def alter_broker(self, changes: Changes) -> None:
        """Raises what `check_broker` does, and StorageFailure."""
        # One after the other: what holds together must not be changed by two at once.
        async with self._turn:
            settings = self.check_broker(changes)
            await self._topics.alter_resource(_BROKER, changes)
            assert self.apply is not None
            self.apply(settings)

    # Those of groups

    def of_group(self, name: str) -> Mapping[str, str]:
        return self._topics.settings_by_resource.get(f"{_GROUP}{name}", {})

    @property
    def groups(self) -> list[str]:
        """Groups with settings of their own."""
        found = self._topics.settings_by_resource
        return [each.removeprefix(_GROUP) for each in found if each.startswith(_GROUP)]

    def check_group(self, name: str, changes: Changes) -> None:
        """Raises InvalidSetting or InvalidRequest."""
        if not name:
            raise InvalidRequest("a group without a name has no settings")
        values = {n: raw for n, raw in changes.items() if raw is not None}
        effective_for_group(self._groups.settings, values)
        limit = self._groups.settings.configured_max_count
        if values and name not in self._groups.overrides and len(self._groups.overrides) >= limit:
            raise InvalidRequest(
                f"{limit} groups have their own settings already, the most that "
                "millstream.groups.configured.max.count allows"
            )

    async def alter_group(self, name: str, changes: Changes) -> None:
        """Raises what `check_group` does, and StorageFailure."""
        self.check_group(name, changes)
        await self._topics.alter_resource(f"{_GROUP}{name}", changes)
        self._take_group(name)

    def _take_group(self, name: str) -> None:
        self._groups.overrides[name] = self.of_group(name)
        if not self._groups.overrides[name]:
            del self._groups.overrides[name]
