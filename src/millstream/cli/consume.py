"""`millstream consume`: messages of topics to stdout.

Without `--follow` it reads what was there when it began, and ends. As a member of a group it shares
the partitions with the group's other members, and commits what it has printed.

Invariant: what is committed was printed before, so that a crash repeats some and loses none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer

from millstream.cli import moments
from millstream.cli.escapes import unescaped
from millstream.cli.interrupts import interrupts_deferred
from millstream.cli.message_output import Format, format_of, text, text_lines
from millstream.cli.moments import Moment, parse_moment
from millstream.cli.printout import AsJson, end_if_nobody_reads, write
from millstream.cli.remote import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Connection,
    complete_group,
    complete_topic,
    connected,
)
from millstream.clock import ticks_ns
from millstream.errors import UnknownPartition

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster, Fetched, GroupMember, PartitionsReader, Place
    from millstream.records import Record

_POLL_S = 0.5
_COMMIT_NS = 1_000_000_000
_UNPACKED_BYTES = 512 << 20


class _Wish(NamedTuple):
    """What is to be read, and how."""

    topics: Sequence[str]
    partitions: Sequence[int]
    begin: Moment
    follow: bool
    committed: bool


def consume(
    topics: Annotated[list[str], typer.Argument(help="The topics.", autocompletion=complete_topic)],
    *,
    begin: Annotated[
        str, typer.Option("--from", "-o", help=f"Where to begin: {moments.FORMS}.")
    ] = ("earliest"),
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, max=sys.maxsize, help="End after so many messages."),
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this one.", show_default="all"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group, from what it has committed.",
            autocompletion=complete_group,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-F",
            help="text, json, hex, or a form of your own with %t topic, %p partition, %o offset, "
            "%k key, %v value, %h headers, %T and %I time.",
        ),
    ] = "text",
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Print the key too, with this behind it."),
    ] = None,
    uncommitted: Annotated[
        bool,
        typer.Option("--uncommitted", help="With what transactions left open."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Print the messages of topics."""
    if group is not None and partitions:
        raise typer.BadParameter("--group and --partition: a group shares out partitions itself")
    separator = None if key_separator is None else unescaped(key_separator, "--key-separator")
    wish = _Wish(topics, partitions or (), parse_moment(begin, "--from"), follow, not uncommitted)
    printer = _Printer(format_of("json" if json else form, key_separator=separator), count)
    with connected(bootstrap, connection) as cluster:
        if group is None:
            _read(cluster, wish, printer)
        else:
            _read_as_member(cluster, group, wish, printer)


class _Printer:
    """Prints messages until there were enough."""

    def __init__(self, form: Format, count: int | None) -> None:
        self._form = form
        self._left = count

    def has_enough(self) -> bool:
        return self._left == 0

    def print(self, place: Place, found: Fetched, *, start: int, end: int | None) -> int:
        """Print what lies in a range; returns the offset behind the last that was printed."""
        # What has come since, and with the same answer, was not.
        behind = found.next_offset if end is None else min(found.next_offset, end)
        if self._form is text and self._left is None:
            write(text_lines(_values(found, start, end)))
            return behind
        records = list(islice(_records(found, start, end), self._left))
        if records:
            write(self._form(place, records))
        if self._left is None:
            return behind
        self._left -= len(records)
        return behind if self._left else records[-1].offset + 1


def _values(found: Fetched, start: int, end: int | None) -> list[bytes | None]:
    """As `_records`, and twice as fast."""
    from millstream.client.kafka.visible_records import visible_batches
    from millstream.records import records_of
    from millstream.records.record_values import values_of

    values: list[bytes | None] = []
    for header, batch in visible_batches(found):
        if header.base_offset >= start and (end is None or header.last_offset < end):
            values += values_of(batch, limit_bytes=_UNPACKED_BYTES)
        else:
            values += [
                each.value
                for each in records_of(batch, limit_bytes=_UNPACKED_BYTES)
                if start <= each.offset and (end is None or each.offset < end)
            ]
    return values


def _records(found: Fetched, start: int, end: int | None) -> Iterator[Record]:
    from millstream.client.kafka.visible_records import visible_batches
    from millstream.records import records_of

    for header, batch in visible_batches(found):
        records = records_of(batch, limit_bytes=_UNPACKED_BYTES)
        if header.base_offset >= start and (end is None or header.last_offset < end):
            yield from records
        else:
            yield from (
                each
                for each in records
                if start <= each.offset and (end is None or each.offset < end)
            )


def _read(cluster: Cluster, wish: _Wish, printer: _Printer) -> None:
    places = _places(cluster, wish)
    starts = moments.offsets_at(cluster, places, wish.begin)
    ends = None if wish.follow else _ends(cluster, places, wish)
    with _reader(cluster, starts, wish) as reader:
        _drop_read(reader, ends)
        while reader.positions and not printer.has_enough():
            starts = dict(reader.positions)
            for place, found in reader.poll(_POLL_S):
                end = None if ends is None else ends[place]
                printer.print(place, found, start=starts[place], end=end)
                if printer.has_enough():
                    break
            _drop_read(reader, ends)
            end_if_nobody_reads()


def _read_as_member(cluster: Cluster, group: str, wish: _Wish, printer: _Printer) -> None:
    with cluster.member(group, wish.topics) as member:
        is_over = False
        while not is_over:
            places = member.join()
            is_over = _read_share(cluster, group, member, places, wish, printer)


def _read_share(
    cluster: Cluster,
    group: str,
    member: GroupMember,
    places: list[Place],
    wish: _Wish,
    printer: _Printer,
) -> bool:
    """Read what this member got; whether that was all there is to do."""
    committed = cluster.committed(group, places)
    starts = {place: offset for place, offset in committed.items() if offset is not None}
    fresh = [place for place in places if place not in starts]
    starts |= moments.offsets_at(cluster, fresh, wish.begin) if fresh else {}
    ends = None if wish.follow else _ends(cluster, places, wish)
    progress = _Progress(member)
    with _reader(cluster, starts, wish) as reader, progress:
        _drop_read(reader, ends)
        while (
            not member.must_join and not printer.has_enough() and (reader.positions or wish.follow)
        ):
            starts = dict(reader.positions)
            for place, found in reader.poll(_POLL_S):
                end = None if ends is None else ends[place]
                with interrupts_deferred():
                    progress.add(place, printer.print(place, found, start=starts[place], end=end))
                if printer.has_enough():
                    break
            if not starts:
                progress.wait()
            progress.commit_if_due()
            _drop_read(reader, ends)
            end_if_nobody_reads()
        is_over = printer.has_enough() or not (reader.positions or wish.follow)
        return progress.commit() and is_over


class _Progress:
    """How far a member has come, committed now and then."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._offsets: dict[Place, int] = {}
        self._committed_ns = ticks_ns()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            # This also repeats a commit that was interrupted.
            self.commit()

    def add(self, place: Place, offset: int) -> None:
        self._offsets[place] = offset

    def commit_if_due(self) -> None:
        if ticks_ns() - self._committed_ns >= _COMMIT_NS:
            self.commit()

    def commit(self) -> bool:
        """False when somebody else has the partitions by now, and will print some again."""
        self._committed_ns = ticks_ns()
        is_taken = self._member.commit(self._offsets)
        self._offsets = {}
        return is_taken

    def wait(self) -> None:
        """For a member that got nothing to read."""
        self._member.wait(_POLL_S)


@contextmanager
def _reader(cluster: Cluster, starts: dict[Place, int], wish: _Wish) -> Iterator[PartitionsReader]:
    from millstream.client.kafka import PartitionsReader

    reader = PartitionsReader(cluster, starts, committed=wish.committed)
    try:
        yield reader
    finally:
        reader.close()


def _places(cluster: Cluster, wish: _Wish) -> list[Place]:
    places = []
    for topic, numbers in cluster.partitions(wish.topics).items():
        for number in wish.partitions or numbers:
            if number not in numbers:
                raise UnknownPartition(topic, number, count=len(numbers))
            places.append((topic, number))
    return places


def _ends(cluster: Cluster, places: Sequence[Place], wish: _Wish) -> dict[Place, int]:
    from millstream.client.kafka import LATEST

    return cluster.offsets(places, LATEST, committed=wish.committed)


def _drop_read(reader: PartitionsReader, ends: dict[Place, int] | None) -> None:
    """What was read to its end is not asked for any more."""
    if ends is not None:
        for place in [p for p, offset in reader.positions.items() if offset >= ends[p]]:
            del reader.positions[place]
