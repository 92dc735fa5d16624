"""Settings that a consumer group can have for itself, as text by their Kafka names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millstream.errors import InvalidSetting
from millstream.settings.declaration import Setting, declarations
from millstream.settings.groups import GroupSettings

_PREFIX = "group."
# By the name within a group, the field of the broker's own setting.
_FIELDS = {
    "consumer.session.timeout.ms": "consumer_session_timeout_ms",
    "consumer.heartbeat.interval.ms": "consumer_heartbeat_interval_ms",
}
GROUP_SETTINGS: Mapping[str, Setting] = {
    name: replace(declarations(GroupSettings)[field], name=name) for name, field in _FIELDS.items()
}
"""What a group can set, by name."""


def group_setting(name: str, raw: object = None) -> Setting:
    """The declaration of a setting; `raw` is for the message of the InvalidSetting."""
    known = GROUP_SETTINGS.get(name)
    if known is None:
        names = ", ".join(GROUP_SETTINGS)
        raise InvalidSetting(name=name, value=raw, expected=f"a setting of a group: {names}")
    return known


def effective_for_group(defaults: GroupSettings, overrides: Mapping[str, str]) -> GroupSettings:
    """The broker's settings, with those of a group over them. Raises InvalidSetting."""
    values: dict[str, Any] = {
        _FIELDS[name]: group_setting(name, raw).parse(raw) for name, raw in overrides.items()
    }
    return replace(defaults, **values) if values else defaults


def group_default(defaults: GroupSettings, name: str) -> object:
    """What holds for groups that do not set it."""
    return getattr(defaults, _FIELDS[name])
