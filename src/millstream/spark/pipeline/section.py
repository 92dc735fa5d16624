"""One mapping of a pipeline's file, read field by field.

A field that is missing or wrong is noted as a problem and read as if it were not there, so that
one look at the file finds all that is wrong with it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from millstream.spark.pipeline.document import Node, Place, Problem
from millstream.spark.pipeline.model import Settings, Text

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_UNIT_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}


class Section:
    """A mapping, what it is called in messages, and where problems are noted."""

    def __init__(
        self,
        node: Node,
        title: str,
        problems: list[Problem],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.node = node
        self.title = title
        self._problems = problems
        self._variables = os.environ if variables is None else variables
        self._entries: dict[str, Node] = node.content if isinstance(node.content, dict) else {}
        if not isinstance(node.content, dict):
            self.note(node.place, f"must be a mapping of fields, not {_kind(node)}")

    def note(self, place: Place, message: str) -> None:
        self._problems.append(Problem(place, f"{self.title}: {message}"))

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def has(self, name: str) -> bool:
        return name in self._entries

    def place(self, name: str) -> Place:
        """Of a field's name, or of the whole if it is not there."""
        places = self.node.key_places or {}
        return places.get(name, self.node.place)

    def variable(self, name: str, default: str) -> str:
        """One of the environment."""
        return self._variables.get(name) or default

    def check_names(self, known: Collection[str]) -> None:
        """Note every field that there is not."""
        for name in self._entries:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                self.note(self.place(name), f"there is no field {name!r}: {hint}")

    def text(self, name: str, *, required: bool = False, verbatim: bool = False) -> Text | None:
        """A text, with variables of the environment put in, unless it is to stay as it is."""
        node = self._entries.get(name)
        if node is None:
            if required:
                self.note(self.node.place, f"{name!r} is missing")
            return None
        return self._text(node, name, verbatim=verbatim)

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        if text.content not in allowed:
            self.note(text.place, f"{name} {text.content!r} is none of {', '.join(allowed)}")
            return default
        return text.content

    def flag(self, name: str) -> bool:
        node = self._entries.get(name)
        if node is None:
            return False
        if not isinstance(node.content, bool):
            self.note(node.place, f"{name!r} must be true or false, not {_kind(node)}")
            return False
        return node.content

    def texts(self, name: str) -> tuple[Text, ...]:
        """One text, or a list of them."""
        node = self._entries.get(name)
        if node is None:
            return ()
        nodes = node.content if isinstance(node.content, list) else [node]
        return tuple(text for each in nodes if (text := self._text(each, name)) is not None)

    def settings(self, name: str) -> Settings:
        """A mapping from text to text, as Spark takes its options."""
        section = self.section(name)
        if section is None:
            return Settings({}, {}, self.node.place)
        found = {key: section.text(key) for key in section.names}
        contents = {key: text.content for key, text in found.items() if text is not None}
        return Settings(contents, section.node.key_places or {}, self.place(name))

    def section(self, name: str) -> Section | None:
        node = self._entries.get(name)
        if node is None:
            return None
        return Section(node, f"{self.title}, {name}", self._problems, self._variables)

    def sections(self, name: str, kind: str, *, required: bool = False) -> list[Section]:
        """The mappings of a list. Each is called by its name, if it has one."""
        node = self._entries.get(name)
        if node is None:
            if required:
                self.note(self.node.place, f"{name!r} is missing: there must be at least one")
            return []
        if not isinstance(node.content, list) or (required and not node.content):
            self.note(node.place, f"{name!r} must be a list with a `-` before each {kind}")
            return []
        return [
            Section(each, _title(each, kind, number), self._problems, self._variables)
            for number, each in enumerate(node.content, start=1)
        ]

    def duration_ms(self, name: str, *, required: bool = False) -> int | None:
        text = self.text(name, required=required)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.content.strip())
        if found is None or found[2].lower() not in _UNIT_MS:
            self.note(text.place, f"{name} {text.content!r} is no time: write it as `10 seconds`")
            return None
        return int(float(found[1]) * _UNIT_MS[found[2].lower()])

    def fields(self, name: str) -> tuple[tuple[Text, Text], ...]:
        """The entries of a mapping, names and values, in order."""
        section = self.section(name)
        if section is None:
            return ()
        found = []
        for key in section.names:
            value = section.text(key)
            if value is not None:
                found.append((Text(key, Node(key, section.place(key), key)), value))
        return tuple(found)

    def is_mapping(self, name: str) -> bool:
        node = self._entries.get(name)
        return node is not None and isinstance(node.content, dict)

    def _text(self, node: Node, name: str, *, verbatim: bool = False) -> Text | None:
        content = node.content
        if isinstance(content, bool):
            content = str(content).lower()
        elif isinstance(content, int):
            content = str(content)
        elif isinstance(content, float | date):
            content = node.raw.strip()
        if not isinstance(content, str) or not content.strip():
            self.note(node.place, f"{name!r} must be a text, not {_kind(node)}")
            return None
        return Text(content if verbatim else self._filled_in(content, node.place), node)

    def _filled_in(self, content: str, place: Place) -> str:
        def value(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            if name in self._variables:
                return self._variables[name]
            if default is None:
                self.note(place, f"the variable {name} is not set: set it, or write ${{{name}:-…}}")
            return default or ""

        return _VARIABLE.sub(value, content)


def _title(node: Node, kind: str, number: int) -> str:
    name = node.content.get("name") if isinstance(node.content, dict) else None
    is_named = name is not None and isinstance(name.content, str)
    return f"{kind} {name.content!r}" if is_named and name else f"{kind} number {number}"


def _kind(node: Node) -> str:
    content: Any = node.content
    if content is None or content == "":
        return "nothing"
    names = {dict: "a mapping", list: "a list", bool: "true or false", str: "a text"}
    return names.get(type(content), f"a {type(content).__name__}")
