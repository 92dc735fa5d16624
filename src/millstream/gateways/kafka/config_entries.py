"""Settings as Kafka's admin answers show them: with their source, type and what lies underneath."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from millstream.settings.declaration import Setting, declarations
from millstream.settings.domain import INT_MAX, Domain, Flag, Fraction, Names, Only, SomeOf, Whole
from millstream.settings.dynamic import place_of
from millstream.settings.group_overrides import GROUP_SETTINGS, group_default
from millstream.settings.groups import GroupSettings
from millstream.settings.loader import SECTIONS, Settings
from millstream.settings.log import LogSettings
from millstream.settings.overrides import TOPIC_SETTINGS, setting_texts, text_of


class Source(IntEnum):
    """Who set a value."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    BROKER_FILE = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """What kind of value a setting takes."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Layer(NamedTuple):
    """A value, and who set it."""

    value: str
    source: Source


class ConfigEntry(NamedTuple):
    """A setting with its layers, of which the first one holds."""

    setting: Setting
    layers: list[Layer]

    @property
    def config_type(self) -> ConfigType:
        return _type_of(self.setting.domain)


def topic_entries(overrides: Mapping[str, str], defaults: LogSettings) -> Iterator[ConfigEntry]:
    """Every setting of a topic that sets some for itself."""
    texts = setting_texts(defaults)
    for name, setting in TOPIC_SETTINGS.items():
        layers = _broker_layers(setting, texts[name])
        if name in overrides:
            layers.insert(0, Layer(overrides[name], Source.TOPIC))
        yield ConfigEntry(setting, layers)


def broker_entries(settings: Settings, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every setting of the broker, which read some and was given others by clients."""
    for section in SECTIONS:
        component = getattr(settings, section)
        for field_name, setting in declarations(component).items():
            text = text_of(getattr(component, field_name))
            layers = _broker_layers(setting, text)
            if setting.name in overrides and place_of(setting.name).section == section:
                layers.insert(0, Layer(overrides[setting.name], Source.BROKER))
            yield ConfigEntry(setting, layers)


def dynamic_entries(overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """What clients have set for all brokers, of which there is one."""
    for name, value in overrides.items():
        yield ConfigEntry(place_of(name).setting, [Layer(value, Source.ALL_BROKERS)])


def group_entries(overrides: Mapping[str, str], defaults: GroupSettings) -> Iterator[ConfigEntry]:
    """Every setting that a group can have for itself."""
    for name, setting in GROUP_SETTINGS.items():
        layers = _broker_layers(setting, text_of(group_default(defaults, name)))
        if name in overrides:
            layers.insert(0, Layer(overrides[name], Source.GROUP))
        yield ConfigEntry(setting, layers)


def _broker_layers(setting: Setting, text: str) -> list[Layer]:
    default = Layer(text_of(setting.default), Source.DEFAULT)
    return [default] if text == default.value else [Layer(text, Source.BROKER_FILE), default]


def _type_of(domain: Domain) -> ConfigType:
    if isinstance(domain, Whole):
        return ConfigType.INT if domain.maximum <= INT_MAX else ConfigType.LONG
    if isinstance(domain, Fraction):
        return ConfigType.DOUBLE
    if isinstance(domain, Flag) or (isinstance(domain, Only) and isinstance(domain.value, bool)):
        return ConfigType.BOOLEAN
    if isinstance(domain, Only) and isinstance(domain.value, int):
        return ConfigType.INT
    return ConfigType.LIST if isinstance(domain, SomeOf | Names) else ConfigType.STRING
