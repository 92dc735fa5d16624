"""Settings of a log that its topic sets for itself, as text by their Kafka names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from millstream.errors import InvalidSetting
from millstream.settings.declaration import Setting, declarations
from millstream.settings.log import LogSettings

_FIELDS: dict[str, str] = {
    each.name: field_name for field_name, each in declarations(LogSettings).items()
}
TOPIC_SETTINGS: Mapping[str, Setting] = {
    each.name: each for each in declarations(LogSettings).values()
}
"""What a topic can set, by name."""


def effective(defaults: LogSettings, overrides: Mapping[str, str]) -> LogSettings:
    """The settings of a log: the broker's, with a topic's own over them. Raises InvalidSetting."""
    if not overrides:
        return defaults
    values: dict[str, Any] = {}
    for name, raw in overrides.items():
        value = parse_override(name, raw)
        values[_FIELDS[name]] = value
    return replace(defaults, **values)


def parse_override(name: str, raw: str) -> object:
    """Raises InvalidSetting for a name that nothing has, or a value that it cannot take."""
    return topic_setting(name, raw).parse(raw)


def topic_setting(name: str, raw: object = None) -> Setting:
    """The declaration of a setting; `raw` is for the message of the InvalidSetting."""
    known = TOPIC_SETTINGS.get(name)
    if known is None:
        close = get_close_matches(name, TOPIC_SETTINGS, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidSetting(name=name, value=raw, expected=f"the name of a topic setting{hint}")
    return known


def setting_texts(settings: LogSettings) -> dict[str, str]:
    """Every setting's value as text, by name."""
    return {name: text_of(getattr(settings, field)) for name, field in _FIELDS.items()}


def text_of(value: object) -> str:
    """A value as a person would write it for `Setting.parse`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset | list):
        return ",".join(sorted(value))
    return str(value)
