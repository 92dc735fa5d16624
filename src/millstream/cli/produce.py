"""`millstream produce`: messages from stdin or files to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.escapes import unescaped
from millstream.cli.presence import present_files
from millstream.cli.printout import AsJson, note, print_json
from millstream.cli.progress import shown
from millstream.cli.remote import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Connection,
    complete_topic,
    connected,
)
from millstream.errors import InvalidRequest, UnknownTopic

if TYPE_CHECKING:
    from millstream.cli.message_input import Piece, Reading
    from millstream.cli.outbox import Outbox, Sending
    from millstream.client.kafka import Cluster

_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_FORMS = ("text", "json", "hex", "file")


def produce(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files to read.", show_default="stdin", dir_okay=False, callback=present_files
        ),
    ] = None,
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-F",
            help="text: a message per line; json: an object per line, with key, value, headers, "
            "partition, timestamp; hex: digits per line; file: each file is one message.",
        ),
    ] = "text",
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-K", help="What stands between key and value.")
    ] = "",
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="The key of messages without one.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="A header of all messages.", metavar="NAME=VALUE"),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, help="Where to.", show_default="by key, or in turns"
        ),
    ] = None,
    acks: Annotated[
        str, typer.Option(help="all: on disk; 1: taken; 0: nobody waits for an answer.")
    ] = "all",
    compression: Annotated[str, typer.Option(help=f"{', '.join(_CODECS)}.")] = "none",
    batch_messages: Annotated[int, typer.Option(min=1, help="At most so many in a batch.")] = 5000,
    batch_bytes: Annotated[int, typer.Option(min=1, help="At most so large a batch.")] = 512 << 10,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic, also where brokers do not do so.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Send messages, as they come from stdin or files."""
    from millstream.cli.message_input import Reading
    from millstream.cli.outbox import Sending
    from millstream.records import Codec

    _one_of("--format", form, _FORMS)
    _one_of("--compression", compression, _CODECS)
    _one_of("--acks", acks, tuple(_ACKS))
    sending = Sending(
        topic=topic,
        partition=partition,
        key=None if key is None else key.encode(errors="surrogateescape"),
        headers=tuple(_header(word) for word in headers or ()),
        codec=Codec[compression.upper()],
        acks=_ACKS[acks],
        batch_messages=batch_messages,
        batch_bytes=batch_bytes,
    )
    reading = Reading(form=form, key_separator=unescaped(key_separator, "--key-separator"))
    _produce(sending, reading, files or [], bootstrap, connection, create=create, json=json)


def _produce(
    sending: Sending,
    reading: Reading,
    files: Sequence[Path],
    bootstrap: str,
    connection: list[str] | None,
    *,
    create: bool,
    json: bool,
) -> None:
    from millstream.cli.outbox import Outbox
    from millstream.clock import SystemClock, ticks_ns

    with connected(bootstrap, connection) as cluster:
        _settle_topic(cluster, sending.topic, create=create)
        outbox = Outbox(cluster, sending, SystemClock())
        began_ns = ticks_ns()
        try:
            size = _send_all(outbox, reading, files)
            outbox.flush()
        finally:
            outbox.close()
        seconds = (ticks_ns() - began_ns) / 1e9
    count = sum(outbox.counts.values())
    if json:
        print_json(
            {
                "topic": sending.topic,
                "messages": count,
                "bytes": size,
                "seconds": round(seconds, 3),
                "partitions": dict(sorted(outbox.counts.items())),
            }
        )
    elif sys.stderr.isatty():
        rate = round(count / max(seconds, 0.001))
        told = f"{count:,} messages to topic {sending.topic!r} in {seconds:.1f} s"
        note(f"{told} ({rate:,} per second)")


def _send_all(outbox: Outbox, reading: Reading, files: Sequence[Path]) -> int:
    from millstream.cli.message_input import pieces
    from millstream.clock import ticks_ns

    size, began_ns = 0, ticks_ns()
    total = sum(path.stat().st_size for path in files) if files else None
    with shown("sending", total) as tell:
        for piece in _told(pieces(files, reading), outbox):
            outbox.add(piece)
            if not files:
                # Whoever writes to us waits for it to arrive.
                outbox.push()
            size += piece.size
            count = sum(outbox.counts.values())
            seconds = (ticks_ns() - began_ns) / 1e9
            tell(size, f"{count:,} messages, {count / max(seconds, 0.001):,.0f} per second")
    return size


def _told(found: Iterator[Piece], outbox: Outbox) -> Iterator[Piece]:
    """Input; what is wrong in it is told with how much was sent, so that one can go on there."""
    try:
        yield from found
    except InvalidRequest as error:
        outbox.flush()
        if not (count := sum(outbox.counts.values())):
            raise
        raise InvalidRequest(f"{error}; the first {count:,} messages were sent") from None


def _header(word: str) -> tuple[str, bytes]:
    """A message may have several of one name, and spaces in their values."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--header {word}: give a name and a value, as trace=1")
    return name, value.encode(errors="surrogateescape")


def _settle_topic(cluster: Cluster, topic: str, *, create: bool) -> None:
    """See that the topic is there: brokers may create it by themselves. Raises UnknownTopic."""
    try:
        cluster.partitions([topic])
    except UnknownTopic:
        if create:
            cluster.create_topic(topic, exist_ok=True)
        else:
            cluster.partitions([topic], creates=True)
            note(f"topic {topic!r} is new")


def _one_of(flag: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise typer.BadParameter(f"{given!r} for {flag}: give one of {', '.join(known)}")
