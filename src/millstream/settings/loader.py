"""Reads settings from a TOML file and lets flags override it.

    [log]
    segment.bytes = 1073741824
    "retention.ms" = 604800000

A key may be quoted or dotted; both mean the same. Whatever is not a known setting with a value
in its range is refused, with the file and the line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from millstream.errors import InvalidSetting
from millstream.settings.declaration import Setting, declarations
from millstream.settings.groups import GroupSettings
from millstream.settings.http import HttpSettings
from millstream.settings.kafka import KafkaSettings
from millstream.settings.log import LogSettings
from millstream.settings.pylogstreams import PyLogStreamsSettings
from millstream.settings.storage import StorageSettings
from millstream.settings.subscriptions import SubscriptionLimits
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
    "kafka": KafkaSettings,
    "http": HttpSettings,
    "pylogstreams": PyLogStreamsSettings,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a broker. A component is given its own part."""

    storage: StorageSettings = field(default_factory=StorageSettings)
    log: LogSettings = field(default_factory=LogSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    subscriptions: SubscriptionLimits = field(default_factory=SubscriptionLimits)
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    pylogstreams: PyLogStreamsSettings = field(default_factory=PyLogStreamsSettings)


def load(path: str | None = None, *, flags: Mapping[str, object] | None = None) -> Settings:
    """Settings from the file, if any, with `flags` (by setting name) over it."""
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    if path is not None:
        text = _read(path)
        for section, name, raw in _entries(_parse(text, path)):
            source = _source(path, text, f"{section}.{name}")
            field_name, declaration = _declaration(section, name, raw, source)
            if field_name in values[section]:
                raise InvalidSetting(
                    name=name, value=raw, expected="to be set only once", source=source
                )
            values[section][field_name] = declaration.parse(raw, source=source)
    for name, raw in (flags or {}).items():
        section = _section_of(name)
        field_name, declaration = _by_name(section)[name]
        values[section][field_name] = declaration.parse(raw, source="command line")
    return Settings(**{name: kind(**values[name]) for name, kind in SECTIONS.items()})


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidSetting(
            name="--config", value=path, expected=f"a file that can be read ({reason})"
        ) from None


def _parse(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(name="--config", value=path, expected=f"TOML ({error})") from None


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    """Section, setting name and value of each entry; what is no known table has no name."""
    for section, content in document.items():
        if not isinstance(content, dict) or not (content or section in SECTIONS):
            yield section, "", content
            continue
        for name, raw in _flatten(content):
            yield section, name, raw


def _flatten(table: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{rest}", leaf) for rest, leaf in _flatten(value))
        else:
            yield key, value


def _declaration(section: str, name: str, raw: object, source: str) -> tuple[str, Setting]:
    if section not in SECTIONS or not name:
        shown = f"{section}.{name}" if name else section
        sections = ", ".join(f"[{each}]" for each in SECTIONS)
        raise InvalidSetting(
            name=shown, value=raw, expected=f"a setting in one of {sections}", source=source
        )
    known = _by_name(section)
    if name not in known:
        raise InvalidSetting(
            name=name,
            value=raw,
            expected=f"the name of a setting in [{section}]{_suggestion(name, known)}",
            source=source,
        )
    return known[name]


def _suggestion(name: str, known: Iterable[str]) -> str:
    for section in SECTIONS:
        if name in _by_name(section):
            return f"; this one belongs in [{section}]"
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _by_name(section: str) -> dict[str, tuple[str, Setting]]:
    found = declarations(SECTIONS[section])
    return {each.name: (field_name, each) for field_name, each in found.items()}


def _section_of(name: str) -> str:
    return next(section for section in SECTIONS if name in _by_name(section))


def _source(path: str, text: str, key: str) -> str:
    line = _line_of(text, key.rstrip("."))
    return f"{path}:{line}" if line else path


def _line_of(text: str, key: str) -> int:
    """The line that sets a key; else the first that sets a part of it or holds it; else 0."""
    nearest = 0
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = found = _plain_key(stripped.strip("[").partition("]")[0])
        elif "=" in stripped and not stripped.startswith("#"):
            own = _plain_key(stripped.partition("=")[0])
            found = f"{table}.{own}" if table else own
        else:
            continue
        if found == key:
            return number
        if not nearest and (found.startswith(f"{key}.") or key.startswith(f"{found}.")):
            nearest = number
    return nearest


def _plain_key(key: str) -> str:
    """A TOML key without quotes and spaces, so that all ways to write it look the same."""
    return "".join(character for character in key if character not in "\"' \t")
