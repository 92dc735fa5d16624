"""Reads settings from a TOML file, the environment and the command line.

    [log]                                     MILLSTREAM_LOG_SEGMENT_BYTES=1073741824
    segment.bytes = 1073741824                --set log.segment.bytes=1073741824
    "retention.ms" = 604800000

What comes later in that order wins. Whatever is not a known setting with a value in its range is
refused: the file and the line, the variable or the flag is told, the value, and what is expected.
All that is wrong is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from millstream.errors import InvalidSetting, InvalidSettings
from millstream.settings.sections import (
    PLACES,
    SECTIONS,
    VARIABLE_PREFIX,
    Place,
    Settings,
)
from millstream.settings.toml_file import FileEntry, read_entries

__all__ = ["CONFIG_VARIABLE", "SECTIONS", "Settings", "load"]

CONFIG_VARIABLE = "MILLSTREAM_CONFIG"
_COMMAND_LINE = "command line"
# Kubernetes sets these in every container beside a service that is called millstream-something.
_OF_KUBERNETES = re.compile(
    r".*_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
_OF_OTHERS = {"MILLSTREAM_BOOTSTRAP", "MILLSTREAM_URL"}
"""Commands and files of pipelines take the address of their broker from them."""


class _Given(NamedTuple):
    """A value that somebody gave a setting."""

    place: Place
    raw: object
    source: str


@dataclass(slots=True)
class _Loading:
    """What was found so far."""

    values: dict[str, dict[str, Any]] = field(default_factory=lambda: {n: {} for n in SECTIONS})
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[InvalidSetting] = field(default_factory=list)

    def take(self, given: Iterable[_Given | InvalidSetting]) -> None:
        for each in given:
            if isinstance(each, InvalidSetting):
                self.problems.append(each)
                continue
            place, raw, source = each
            try:
                value = place.setting.parse(raw, source=source)
            except InvalidSetting as problem:
                self.problems.append(problem)
            else:
                self.values[place.section][place.field_name] = value
                self.origins[place.key] = source

    def settings(self) -> Settings:
        """Raises InvalidSetting, or InvalidSettings where there are several."""
        components: dict[str, Any] = {}
        for section, kind in SECTIONS.items():
            try:
                components[section] = kind(**self.values[section])
            except InvalidSetting as problem:
                # Settings that each are fine, and do not go together.
                problem.source = self.origins.get(f"{section}.{problem.name}", "")
                self.problems.append(problem)
        if len(self.problems) > 1:
            raise InvalidSettings(self.problems)
        if self.problems:
            raise self.problems[0]
        return Settings(**components, origins=self.origins)


def load(
    path: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    assignments: Iterable[str] = (),
) -> Settings:
    """Settings from the file, if any, the environment over it, and over both the command line.

    `flags` are by setting name; an assignment is `section.name=value`.
    """
    variables = environment or {}
    named_by = "--config"
    if path is None and variables.get(CONFIG_VARIABLE):
        path, named_by = variables[CONFIG_VARIABLE], CONFIG_VARIABLE
    loading = _Loading()
    if path is not None:
        loading.take(_of_file(read_entries(path, named_by=named_by)))
    loading.take(_of_environment(variables))
    loading.take(
        _Given(next(place for place in PLACES if place.setting.name == name), raw, _COMMAND_LINE)
        for name, raw in (flags or {}).items()
    )
    loading.take(_of_assignment(text) for text in assignments)
    return loading.settings()


def _of_file(entries: Iterable[FileEntry]) -> Iterator[_Given | InvalidSetting]:
    seen: set[str] = set()
    for section, name, raw, source in entries:
        if section in SECTIONS and not name and raw == {}:
            continue  # a section without settings
        place = _find(f"{section}.{name}") if name else None
        if place is None:
            yield _unknown(section, name, raw, source)
        elif place.key in seen:
            yield InvalidSetting(
                name=name, value=raw, expected="to be set only once", source=source
            )
        else:
            seen.add(place.key)
            yield _Given(place, raw, source)


def _unknown(section: str, name: str, raw: object, source: str) -> InvalidSetting:
    if section not in SECTIONS or not name:
        shown = f"{section}.{name}" if name else section
        sections = ", ".join(f"[{each}]" for each in SECTIONS)
        expected = f"a setting in one of {sections}"
        return InvalidSetting(name=shown, value=raw, expected=expected, source=source)
    known = [place.setting.name for place in PLACES if place.section == section]
    hint = _suggestion(name, known)
    for place in PLACES:
        if place.setting.name == name:
            hint = f"; this one belongs in [{place.section}]"
            break
    expected = f"the name of a setting in [{section}]{hint}"
    return InvalidSetting(name=name, value=raw, expected=expected, source=source)


def _of_environment(variables: Mapping[str, str]) -> Iterator[_Given | InvalidSetting]:
    known = {place.variable: place for place in PLACES}
    for name in sorted(variables):
        if not name.startswith(VARIABLE_PREFIX) or name == CONFIG_VARIABLE or name in _OF_OTHERS:
            continue
        if (place := known.get(name)) is not None:
            yield _Given(place, variables[name], name)
        elif not _OF_KUBERNETES.fullmatch(name):
            hint = _suggestion(name, [*known, CONFIG_VARIABLE])
            expected = f"the variable of a setting{hint}"
            yield InvalidSetting(
                name=name, value=variables[name], expected=expected, source="environment"
            )


def _of_assignment(text: str) -> _Given | InvalidSetting:
    """What `--set` gives."""
    key, equals, raw = text.partition("=")
    if not equals:
        return InvalidSetting(name="--set", value=text, expected="section.name=value")
    key = key.strip()
    if (place := _find(key)) is not None:
        return _Given(place, raw, _COMMAND_LINE)
    named = [place for place in PLACES if place.setting.name == key]
    if len(named) == 1:
        return _Given(named[0], raw, _COMMAND_LINE)
    hint = _suggestion(key, [place.key for place in PLACES])
    if named:
        hint = f"; there are {' and '.join(place.key for place in named)}"
    return InvalidSetting(
        name=key, value=raw, expected=f"a setting, as section.name{hint}", source=_COMMAND_LINE
    )


def _find(key: str) -> Place | None:
    return next((place for place in PLACES if place.key == key), None)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
