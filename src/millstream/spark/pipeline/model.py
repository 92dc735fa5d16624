"""A pipeline as its file declares it: plain values, checked as far as that needs no Spark.

Names of sources and steps are views of SQL, so they are compared without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.spark.pipeline.document import Node, Place

DEAD_LETTERS = "dead-letters"
"""The name of the query that sends what does not parse to the dead letter topic."""
SINK_KINDS = ("topic", "delta", "parquet", "console")


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the file, which knows where it stands."""

    content: str
    node: Node

    def __str__(self) -> str:
        return self.content

    @property
    def place(self) -> Place:
        return self.node.place


class Settings(dict[str, str]):
    """A mapping of the file from text to text, which knows where each name stands."""

    def __init__(
        self, contents: Mapping[str, str], places: Mapping[str, Place], place: Place
    ) -> None:
        super().__init__(contents)
        self._places = places
        self._place = place

    def place(self, name: str) -> Place:
        """Of a name, whatever its case, or of the whole."""
        places = {each.lower(): place for each, place in self._places.items()}
        return places.get(name.lower(), self._place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late rows may come, by the time in one of their columns."""

    column: Text
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics that are read as one view."""

    name: Text
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    schema: Text | tuple[tuple[Text, Text], ...] | None
    """DDL in one text, or the name and type of each field. Only JSON has one."""
    watermark: Watermark | None
    starting: str | int
    """`earliest`, `latest`, or a time in milliseconds."""
    headers: bool
    options: Settings
    parse_options: Settings

    @property
    def can_fail(self) -> bool:
        """Whether there can be rows that do not parse."""
        return self.format != "raw"

    def reads(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.topics
        try:
            return re.fullmatch(self.pattern, topic) is not None
        except re.error:
            # Told with the other options of the source.
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A view over those before it: of SQL, or what a Python function makes of its inputs."""

    name: Text
    sql: Text | None
    function: Text | None
    inputs: tuple[Text, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where the rows of a view go. Each sink is a query of its own."""

    name: str
    place: Place
    kind: str
    view: Text
    target: str
    output: str
    output_place: Place
    format: str
    key: Text | None
    delivery: str
    upsert_by: tuple[Text, ...]
    partition_by: tuple[Text, ...]
    options: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All of a file."""

    path: Path
    name: str
    kafka: Settings
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    dead_letter_topic: str
    interval_ms: int | None
    """Between the starts of two batches; None runs once, over all that is there."""
    spark: Settings
    checkpoint: str

    @property
    def views(self) -> tuple[Text, ...]:
        """The names of all views, in the order in which they are made."""
        return (*(each.name for each in self.sources), *(each.name for each in self.steps))

    @property
    def has_dead_letters(self) -> bool:
        return any(source.can_fail for source in self.sources)

    def group(self, query: str) -> str:
        """The consumer group whose offsets tell how far a query has come."""
        return f"{self.name}.{query}"

    def stable_name(self, query: str, generation: int) -> str:
        """What sinks know a query by, so that a lost checkpoint repeats nothing."""
        suffix = f".g{generation}" if generation > 1 else ""
        return f"{self.group(query)}{suffix}"

    def query_checkpoint(self, query: str, generation: int) -> str:
        return f"{self.checkpoint.rstrip('/')}/g{generation}/{query}"

    def needed(self, view: str) -> set[str]:
        """Names, in lower case, of the views that a view is made of, itself among them.

        A name that stands anywhere in the SQL counts: one too many costs little.
        """
        steps = {str(step.name).lower(): step for step in self.steps}
        known = {str(source.name).lower() for source in self.sources} | steps.keys()
        found: set[str] = set()
        open_names = {view.lower()}
        while open_names:
            name = open_names.pop()
            found.add(name)
            if name in steps:
                open_names |= (set(_mentioned(steps[name])) & known) - found
        return found


def _mentioned(step: Step) -> Iterator[str]:
    if step.sql is not None:
        yield from (word.lower() for word in re.findall(r"\w+", step.sql.content))
    yield from (str(each).lower() for each in step.inputs)
