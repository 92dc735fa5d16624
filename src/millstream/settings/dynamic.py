"""Settings of the broker that can change while it runs, as text by name, over those that it read.

A setting of logs may be named as Kafka names it for brokers: `log.retention.ms` is `retention.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from millstream.errors import InvalidRequest, InvalidSetting
from millstream.settings.sections import PLACES, SECTIONS, Place, Settings

ORIGIN = "a client, over the Kafka protocol"

_LOG_PREFIX = "log."
_LOG_NAMES = {"message.max.bytes": "max.message.bytes"}

_BY_NAME: dict[str, Place] = {}
for _place in PLACES:
    # The Kafka listener's comes before that of another one which has a setting of the same name.
    _BY_NAME.setdefault(_place.setting.name, _place)


def place_of(name: str, raw: object = None) -> Place:
    """Where a setting is. Raises InvalidSetting for a name that nothing has."""
    found = _BY_NAME.get(_LOG_NAMES.get(name, name))
    if found is None and name.startswith(_LOG_PREFIX):
        found = _BY_NAME.get(name.removeprefix(_LOG_PREFIX))
        if found is not None and found.section != "log":
            found = None
    if found is None:
        close = get_close_matches(name, _BY_NAME, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidSetting(
            name=name, value=raw, expected=f"the name of a setting of the broker{hint}"
        )
    return found


def check_dynamic(name: str, raw: str) -> None:
    """Raises InvalidSetting, or InvalidRequest for what needs a restart."""
    place = place_of(name, raw)
    if place.setting.needs_restart:
        raise InvalidRequest(
            f"{name} takes effect only when the broker is started: set it in its file"
        )
    place.setting.parse(raw)


def overlaid(settings: Settings, overrides: Mapping[str, str]) -> Settings:
    """Settings with others over some of them. Raises InvalidSetting."""
    if not overrides:
        return settings
    values: dict[str, dict[str, Any]] = {}
    origins = dict(settings.origins)
    for name, raw in overrides.items():
        place = place_of(name, raw)
        values.setdefault(place.section, {})[place.field_name] = place.setting.parse(raw)
        origins[place.key] = ORIGIN
    components = {
        section: replace(getattr(settings, section), **values.get(section, {}))
        for section in SECTIONS
    }
    return Settings(**components, origins=origins)
