"""What becomes of the settings of a running broker when they are read again.

Invariant: a setting that needs a restart keeps the value that the broker was started with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.settings.overrides import text_of
from millstream.settings.sections import PLACES, SECTIONS, Place, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting that is to have another value."""

    place: Place
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.place.key} = {text_of(self.after)} (was {text_of(self.before)})"

    def named(self) -> dict[str, str]:
        """For a line of the log."""
        return {
            "change": str(self),
            "setting": self.place.key,
            "before": text_of(self.before),
            "after": text_of(self.after),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The settings from now on, what is new in them, and what has to wait for a restart."""

    settings: Settings
    changed: tuple[Change, ...]
    postponed: tuple[Change, ...]


def merged(current: Settings, read: Settings) -> Reload:
    """Raises InvalidSetting where what has changed does not go with what cannot."""
    changes = [
        Change(place=place, before=before, after=after)
        for place in PLACES
        if (before := place.value(current)) != (after := place.value(read))
    ]
    postponed = [each for each in changes if each.place.setting.needs_restart]
    components = {}
    for section in SECTIONS:
        kept = {e.place.field_name: e.before for e in postponed if e.place.section == section}
        components[section] = replace(getattr(read, section), **kept)
    origins = dict(read.origins)
    for each in postponed:
        key = each.place.key
        origins.pop(key, None)
        if key in current.origins:
            origins[key] = current.origins[key]
    return Reload(
        settings=Settings(**components, origins=origins),
        changed=tuple(each for each in changes if not each.place.setting.needs_restart),
        postponed=tuple(postponed),
    )
