"""What a reader of topics can be told, by the names of Spark's own Kafka source.

Options come as Spark gives them: all text, names in small letters. A name that is not known is an
error, so that a slip does not go unseen; so is a value that cannot be.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from millstream.client.kafka.settings import OPTION_NAMES, ClusterSettings
from millstream.errors import InvalidOption, InvalidSetting, UnknownOption
from millstream.records.arrow_types import COLUMNS
from millstream.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Place,
    parse_assignment,
    parse_by_partition,
)

PREFIX = "kafka."
# A batch read that is larger than this in one partition is shared by several tasks.
BATCH_RECORDS_PER_TASK = 1_000_000

_GROUP_NAMES = ("group.id", "kafka.group.id")
_ISOLATION_NAMES = ("isolation", "kafka.isolation.level")
SOURCE_NAMES = (
    "assign",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "minPartitions",
    "path",
    "pushFilters",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
    *_GROUP_NAMES,
    *_ISOLATION_NAMES,
)

Words = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which partitions a query reads: topics by name, by pattern, or partitions by number."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    places: tuple[Place, ...] = ()

    @property
    def asked_topics(self) -> list[str] | None:
        """The topics to ask for; None for all."""
        if self.pattern:
            return None
        return sorted({*self.topics, *(topic for topic, _ in self.places)})

    def takes(self, place: Place) -> bool:
        if self.places:
            return place in self.places
        if self.pattern:
            return re.fullmatch(self.pattern, place[0]) is not None
        return place[0] in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where to begin or to end: one place for all partitions, or one for each."""

    kind: Literal["offset", "time"] = "offset"
    everywhere: int | None = None
    by_partition: Offsets = field(default_factory=dict)
    option: str = ""
    # Whether a time after the last record means the end; else it is an error.
    is_lenient: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query."""

    cluster: ClusterSettings
    selection: Selection
    starting: Bound
    ending: Bound
    columns: tuple[str, ...]
    committed: bool = True
    fail_on_data_loss: bool = True
    group: str = ""
    min_partitions: int = 0
    max_records_per_partition: int = 0
    max_offsets_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    path: str = ""
    push_filters: bool = False

    @classmethod
    def parse(cls, words: Words, *, streaming: bool) -> SourceOptions:
        """Raises InvalidOption or UnknownOption."""
        check_names(words, SOURCE_NAMES)
        words = _lowered(words)
        _check_kind(words, streaming=streaming)
        return cls(
            cluster=connection(words),
            selection=_selection(words),
            starting=_starting(words, default=LATEST if streaming else EARLIEST),
            ending=_ending(words),
            columns=column_names(words),
            committed=_isolation(words),
            fail_on_data_loss=_flag(words, "failOnDataLoss", default=True),
            group=_first(words, _GROUP_NAMES),
            min_partitions=_count(words, "minPartitions"),
            max_records_per_partition=_count(
                words, "maxRecordsPerPartition", 0 if streaming else BATCH_RECORDS_PER_TASK
            ),
            max_offsets_per_trigger=_count(words, "maxOffsetsPerTrigger"),
            max_bytes_per_trigger=_count(words, "maxBytesPerTrigger"),
            path=words.get("path", ""),
            push_filters=_flag(words, "pushFilters", default=False),
        )


def connection(words: Words) -> ClusterSettings:
    """How to reach the cluster, from all options that begin with `kafka.`. Raises InvalidOption."""
    settings = {
        name.removeprefix(PREFIX): value
        for name, value in _lowered(words).items()
        if name.startswith(PREFIX) and name not in (*_GROUP_NAMES, *_ISOLATION_NAMES)
    }
    try:
        return ClusterSettings.from_options(settings)
    except InvalidSetting as wrong:
        raise InvalidOption(
            name=PREFIX + wrong.name, value=wrong.value, expected=wrong.expected
        ) from wrong


def check_names(words: Words, known: Iterable[str]) -> None:
    """Raises UnknownOption for a name that is neither known nor one of the connection's."""
    names = {name.lower(): name for name in (*known, *(PREFIX + name for name in OPTION_NAMES))}
    for name in words:
        if name.lower() not in names:
            near = difflib.get_close_matches(name.lower(), names, n=2)
            raise UnknownOption(name=name, near=[names[each] for each in near])


def column_names(words: Words) -> tuple[str, ...]:
    """The columns that a read has. Raises InvalidOption."""
    words = _lowered(words)
    if "columns" not in words:
        with_headers = _flag(words, "includeHeaders", default=False)
        return COLUMNS if with_headers else tuple(name for name in COLUMNS if name != "headers")
    columns = tuple(name.strip() for name in words["columns"].split(","))
    if not set(columns) <= set(COLUMNS) or len(set(columns)) != len(columns):
        raise InvalidOption(
            name="columns", value=words["columns"], expected=f"some of {', '.join(COLUMNS)}"
        )
    return columns


def _lowered(words: Words) -> dict[str, str]:
    return {name.lower(): value for name, value in words.items()}


def _check_kind(words: Words, *, streaming: bool) -> None:
    """Raises InvalidOption for what only the other kind of query takes."""
    wrong = (
        ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "path", "pushFilters")
        if streaming
        else ("maxOffsetsPerTrigger", "maxBytesPerTrigger", *_GROUP_NAMES)
    )
    for name in wrong:
        if name.lower() in words:
            kind = "a streaming read" if streaming else "a batch read"
            raise InvalidOption(
                name=name, value=words[name.lower()], expected=f"to be absent in {kind}"
            )


def _selection(words: Words) -> Selection:
    given = {
        name: _first(words, [name])
        for name in ("subscribe", "subscribePattern", "assign")
        if _first(words, [name])
    }
    if len(given) != 1:
        raise InvalidOption(
            name="subscribe",
            value=", ".join(given) or "",
            expected="one of subscribe=topic,topic, subscribePattern=regex or assign=JSON",
        )
    if "assign" in given:
        return Selection(places=tuple(parse_assignment("assign", given["assign"])))
    if "subscribe" in given:
        topics = tuple(name.strip() for name in given["subscribe"].split(",") if name.strip())
        if not topics:
            raise InvalidOption(
                name="subscribe", value=given["subscribe"], expected="topics, with commas between"
            )
        return Selection(topics=topics)
    try:
        re.compile(given["subscribePattern"])
    except re.error as cause:
        raise InvalidOption(
            name="subscribePattern", value=given["subscribePattern"], expected=f"a regex ({cause})"
        ) from cause
    return Selection(pattern=given["subscribePattern"])


def _starting(words: Words, *, default: int) -> Bound:
    name = "startingOffsetsByTimestampStrategy"
    strategy = _first(words, [name]).lower() or "error"
    if strategy not in ("error", "latest"):
        raise InvalidOption(name=name, value=strategy, expected="error or latest")
    return _bound(words, "starting", default=default, is_lenient=strategy == "latest")


def _ending(words: Words) -> Bound:
    bound = _bound(words, "ending", default=LATEST, is_lenient=True)
    if bound.kind == "offset" and EARLIEST in (bound.everywhere, *bound.by_partition.values()):
        raise InvalidOption(
            name="endingOffsets",
            value=_first(words, ["endingOffsets"]),
            expected="latest or offsets of partitions, of which -1 means latest",
        )
    return bound


def _bound(words: Words, side: str, *, default: int, is_lenient: bool) -> Bound:
    everywhere = f"{side}Timestamp"
    by_time = f"{side}OffsetsByTimestamp"
    by_offset = f"{side}Offsets"
    if text := _first(words, [everywhere]):
        at = _number(everywhere, text)
        return Bound(kind="time", everywhere=at, option=everywhere, is_lenient=is_lenient)
    if text := _first(words, [by_time]):
        times = parse_by_partition(by_time, text, least=0)
        return Bound(kind="time", by_partition=times, option=by_time, is_lenient=is_lenient)
    text = _first(words, [by_offset]).strip()
    if text.lower() in ("earliest", "latest"):
        return Bound(everywhere={"earliest": EARLIEST, "latest": LATEST}[text.lower()])
    if text:
        offsets = parse_by_partition(by_offset, text, least=EARLIEST)
        return Bound(by_partition=offsets, option=by_offset)
    return Bound(everywhere=default)


def _isolation(words: Words) -> bool:
    text = _first(words, _ISOLATION_NAMES) or "read_committed"
    if text not in ("read_committed", "read_uncommitted"):
        raise InvalidOption(
            name="isolation", value=text, expected="read_committed or read_uncommitted"
        )
    return text == "read_committed"


def _first(words: Words, names: Iterable[str]) -> str:
    return next((words[n.lower()] for n in names if words.get(n.lower())), "")


def _flag(words: Words, name: str, *, default: bool) -> bool:
    text = _first(words, [name]) or json.dumps(default)
    if text.lower() not in ("true", "false"):
        raise InvalidOption(name=name, value=text, expected="true or false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.strip().isdigit():
        raise InvalidOption(name=name, value=text, expected="a whole number, 0 or more")
    return int(text)


def _count(words: Words, name: str, default: int = 0) -> int:
    text = _first(words, [name])
    if not text:
        return default
    number = _number(name, text)
    if number == 0:
        raise InvalidOption(name=name, value=text, expected="a whole number, 1 or more")
    return number
