"""All settings of a broker: a section for each component, and how each setting is named.

A setting has one place in the file, `[section]` and its name, and one variable in the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.settings.declaration import Setting, declarations
from millstream.settings.groups import GroupSettings
from millstream.settings.http import HttpSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.log import LogSettings
from millstream.settings.memory import MemorySettings
from millstream.settings.pylogstreams import PyLogStreamsSettings
from millstream.settings.storage import StorageSettings
from millstream.settings.subscriptions import SubscriptionLimits
from millstream.settings.telemetry import TelemetrySettings
from millstream.settings.topics import TopicSettings
from millstream.settings.transactions import TransactionSettings

# Sections of the file, each with the class that declares its settings.
SECTIONS: dict[str, type] = {
    "storage": StorageSettings,
    "log": LogSettings,
    "topics": TopicSettings,
    "groups": GroupSettings,
    "transactions": TransactionSettings,
    "subscriptions": SubscriptionLimits,
    "memory": MemorySettings,
    "kafka": KafkaSettings,
    "http": HttpSettings,
    "pylogstreams": PyLogStreamsSettings,
    "telemetry": TelemetrySettings,
}

VARIABLE_PREFIX = "MILLSTREAM_"
DEFAULT_ORIGIN = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a broker. A component is given its own part."""

    storage: StorageSettings = field(default_factory=StorageSettings)
    log: LogSettings = field(default_factory=LogSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    subscriptions: SubscriptionLimits = field(default_factory=SubscriptionLimits)
    memory: MemorySettings = field(default_factory=MemorySettings)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    pylogstreams: PyLogStreamsSettings = field(default_factory=PyLogStreamsSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Who set what is not a default, by `section.name`: a file with its line, or a variable."""


class Place(NamedTuple):
    """Where a setting is."""

    section: str
    field_name: str
    setting: Setting

    @property
    def key(self) -> str:
        """How it is called outside of its section."""
        return f"{self.section}.{self.setting.name}"

    @property
    def variable(self) -> str:
        """How it is called in the environment. What the section says already is not said again."""
        name = self.setting.name.removeprefix("millstream.").removeprefix(f"{self.section}.")
        return VARIABLE_PREFIX + re.sub(r"[.-]", "_", f"{self.section}.{name}").upper()

    def value(self, settings: Settings) -> object:
        return getattr(getattr(settings, self.section), self.field_name)

    def origin(self, settings: Settings) -> str:
        return settings.origins.get(self.key, DEFAULT_ORIGIN)


PLACES: tuple[Place, ...] = tuple(
    Place(section, field_name, setting)
    for section, component in SECTIONS.items()
    for field_name, setting in declarations(component).items()
)
"""Every setting there is, in order."""
