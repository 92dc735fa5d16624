"""Settings as they stand in a TOML file, each with its section, its name and its line.

A key may be quoted or dotted; both mean the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.errors import InvalidSetting


class FileEntry(NamedTuple):
    """One line of the file, or a part of one. What stands outside of any section has no name."""

    section: str
    name: str
    raw: object
    source: str
    """The file and the line."""


def read_entries(path: str, *, named_by: str) -> list[FileEntry]:
    """All entries of a file. Raises InvalidSetting if it is none: `named_by` told us of it."""
    text = _read(path, named_by)
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Also a number of thousands of digits, and lists in lists without end.
        raise InvalidSetting(name=named_by, value=path, expected=f"TOML ({error})") from None
    return [
        FileEntry(section, name, raw, _source(path, text, f"{section}.{name}"))
        for section, name, raw in _entries(document)
    ]


def _read(path: str, named_by: str) -> str:
    try:
        # Some editors put a mark before the text.
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = "it is not UTF-8 text"
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
        elif not isinstance(error, UnicodeDecodeError):
            reason = str(error)
        raise InvalidSetting(
            name=named_by, value=path, expected=f"a file that can be read ({reason})"
        ) from None


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, str, object]]:
    for section, content in document.items():
        if not isinstance(content, dict) or not content:
            yield section, "", content
            continue
        for name, raw in _flatten(content):
            yield section, name, raw


def _flatten(table: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from ((f"{key}.{rest}", leaf) for rest, leaf in _flatten(value))
        else:
            yield key, value


def _source(path: str, text: str, key: str) -> str:
    line = _line_of(text, key.rstrip("."))
    return f"{path}:{line}" if line else path


def _line_of(text: str, key: str) -> int:
    """The line that sets a key; else the first that sets most of it, or a part of it; else 0."""
    nearest, nearness = 0, 0
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
        if found.startswith(f"{key}.") or key.startswith(f"{found}."):
            shared = min(len(found), len(key))
            if shared > nearness:
                nearest, nearness = number, shared
    return nearest


def _plain_key(key: str) -> str:
    """A TOML key without quotes and spaces, so that all ways to write it look the same."""
    return "".join(character for character in key if character not in "\"' \t")
