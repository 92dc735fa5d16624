"""What a Delta sink is told: which table, how to write to it, and how to keep it in shape.

Invariant: options that were built can be carried out; a wrong one is refused before anything runs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from millstream.errors import InvalidOption, UnknownOption

APPEND, UPSERT = "append", "upsert"
MODES = (APPEND, UPSERT)

_SIZE = re.compile(r"(\d+)\s*(|b|kb?|mb?|gb?)", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_NAMES = (
    "path",
    "mode",
    "key",
    "orderBy",
    "partitionBy",
    "name",
    "mergeSchema",
    "targetFileSize",
    "optimizeEvery",
    "vacuumAfter",
)
# What Spark itself adds to the options that it was given.
_OF_SPARK = {"checkpointlocation", "queryname"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeOptions:
    """Checked on construction."""

    path: str
    """A directory that the driver and every executor reach."""
    mode: str = APPEND
    key: tuple[str, ...] = ()
    """Upsert: the columns that say which row of the table a new one replaces."""
    order_by: str | None = None
    """Upsert: of two rows with one key, the one with more in this column stays."""
    partition_by: tuple[str, ...] = ()
    name: str | None = None
    """What the table knows the query by, whatever becomes of its checkpoint."""
    merge_schema: bool = False
    target_file_bytes: int = 128 << 20
    optimize_every: int = 50
    """Compaction after so many batches; 0: never."""
    vacuum_after_hours: int = 168
    """Files that no version needs any more go after so long; 0: never."""

    def __post_init__(self) -> None:
        if not self.path:
            raise InvalidOption(name="path", value=self.path, expected="a Delta table's directory")
        if self.mode not in MODES:
            raise InvalidOption(name="mode", value=self.mode, expected=" or ".join(MODES))
        if self.mode == UPSERT and not self.key:
            raise InvalidOption(
                name="key", value="", expected="the columns that identify a row, for mode=upsert"
            )
        if self.mode == APPEND and (self.key or self.order_by):
            raise InvalidOption(
                name="mode", value=self.mode, expected="upsert, where key or orderBy is given"
            )
        if self.target_file_bytes < 1:
            raise InvalidOption(
                name="targetFileSize", value=self.target_file_bytes, expected="1 byte or more"
            )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """From the options of a Spark reader or writer, whose names ignore case."""
        given = {name.lower(): text for name, text in options.items()}
        _check_names(options)
        return cls(
            path=_directory(given.get("path", "").strip()),
            mode=given.get("mode", APPEND).lower(),
            key=_names(given.get("key", "")),
            order_by=given.get("orderby"),
            partition_by=_names(given.get("partitionby", "")),
            name=given.get("name") or given.get("queryname"),
            merge_schema=_flag("mergeSchema", given.get("mergeschema", "false")),
            target_file_bytes=_size("targetFileSize", given.get("targetfilesize", "128m")),
            optimize_every=_count("optimizeEvery", given.get("optimizeevery", "50")),
            vacuum_after_hours=_count("vacuumAfter", given.get("vacuumafter", "168")),
        )


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        small = name.lower()
        if small not in known and small not in _OF_SPARK:
            near = difflib.get_close_matches(small, known, n=2)
            raise UnknownOption(name=name, near=[known[each] for each in near])


def _directory(path: str) -> str:
    address = urlsplit(path)
    if address.scheme == "file":
        return unquote(address.path)
    if address.scheme:
        raise InvalidOption(
            name="path", value=path, expected="a directory that every executor reaches"
        )
    return path


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidOption(name=name, value=text, expected="true or false")
    return text.lower() == "true"


def _count(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidOption(name=name, value=text, expected="a whole number, 0 for never")
    return int(text)


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise InvalidOption(name=name, value=text, expected="bytes, or a size such as 128m")
    return int(found[1]) * _UNITS[found[2].lower()[:1]]
