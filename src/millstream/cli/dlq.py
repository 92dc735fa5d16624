"""`millstream dlq`: dead letters of a running broker, looked at, sent back, or deleted.

Letters are those of a topic's subscriptions. To look, all of them may be meant; to send back, one
is, since whoever reads the topic gets what is sent back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.message_content import content
from millstream.cli.printout import AsJson, Yes, confirm, print_json, print_lines, print_table
from millstream.cli.remote import DEFAULT_URL, Url, ask
from millstream.errors import InvalidRequest, UnknownTopic

if TYPE_CHECKING:
    from millstream.client.dead_letters import DeadLetter, LetterCounts, LetterState, Replayed
    from millstream.client.queues import AsyncQueues

commands = typer.Typer(
    no_args_is_help=True, help="Dead letters: messages that were delivered in vain too often."
)


class State(StrEnum):
    """Which letters to show."""

    ALL = "all"
    OUTSTANDING = "outstanding"
    REPLAYED = "replayed"


Topic = Annotated[str, typer.Argument(help="The topic that they were first sent to.")]

_AT_ONCE = 100
# The broker sends back no more with one request.
_MOST_SENT_BACK = 10_000
_TITLES = ("ID", "SUBSCRIPTION", "REPLAYED", "SOURCE", "TRIES", "TIME", "KEY", "REASON", "VALUE")
_ELASTIC = ("KEY", "REASON", "VALUE")


@commands.command()
def browse(
    topic: Topic,
    *,
    subscription: Annotated[
        str | None, typer.Option(help="Only those of this subscription.", show_default="all")
    ] = None,
    state: Annotated[
        State, typer.Option(help="Which: all, those sent back, or those that were not.")
    ] = State.ALL,
    limit: Annotated[int, typer.Option(min=1, help="How many to show.")] = 100,
    url: Url = DEFAULT_URL,
    json: AsJson = False,
) -> None:
    """Look at dead letters, the oldest first. They stay where they are."""
    rows: list[tuple[object, ...]] = []
    counted: list[LetterCounts] = []

    async def look(queues: AsyncQueues) -> bool:
        names = [subscription] if subscription else await _subscriptions(queues, topic)
        count = 0
        counted.extend(await _counts(queues, topic, names))
        found = _letters(queues, topic, names, at_once=limit + 1, state=state.value)
        async with aclosing(found) as letters:
            async for name, letter in letters:
                if count == limit:
                    return True
                count += 1
                if json:
                    print_json(_shape(name, letter))
                else:
                    rows.append(_row(name, letter))
        return False

    has_more = ask(url, look)
    if json:
        return
    if rows:
        _print_letters(rows)
    else:
        chosen = "" if state is State.ALL else f" that are {state.value}"
        print_lines(f"topic {topic!r} has no dead letters{chosen}")
    _print_counts(counted)
    if has_more:
        print_lines(f"there are more than these {limit}: see them with --limit")


def _print_letters(rows: Sequence[tuple[object, ...]]) -> None:
    """Without the column that says which were sent back, where none was."""
    at = _TITLES.index("REPLAYED")
    if any(row[at] for row in rows):
        print_table(_TITLES, rows, elastic=_ELASTIC)
    else:
        titles = (*_TITLES[:at], *_TITLES[at + 1 :])
        print_table(titles, [(*row[:at], *row[at + 1 :]) for row in rows], elastic=_ELASTIC)


def _print_counts(counted: Sequence[LetterCounts]) -> None:
    outstanding = sum(each.outstanding for each in counted)
    replayed = sum(each.replayed for each in counted)
    if outstanding or replayed:
        least = "" if all(each.is_complete for each in counted) else "at least "
        print_lines("", f"{least}{outstanding} outstanding, {replayed} replayed")


@commands.command()
def replay(
    topic: Topic,
    *,
    subscription: Annotated[
        str | None,
        typer.Option(help="Those of this subscription.", show_default="the one that there is"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=_MOST_SENT_BACK, help="How many to send back.")
    ] = 1000,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="Only this letter; may be repeated.", show_default="the oldest"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="With --id: also if it was sent back before.")
    ] = False,
    url: Url = DEFAULT_URL,
    json: AsJson = False,
) -> None:
    """Send dead letters back to their topic, as new messages: the oldest that were not yet."""
    if again and not ids:
        raise typer.BadParameter("--again needs --id: say which letters to send back again")

    async def send_back(queues: AsyncQueues) -> tuple[str, Replayed]:
        names = [subscription] if subscription else await _subscriptions(queues, topic)
        if len(names) > 1:
            raise InvalidRequest(
                f"topic {topic!r} has {len(names)} subscriptions: choose whose letters to send "
                f"back with --subscription: {', '.join(names)}"
            )
        return names[0], await queues.replay(
            topic, names[0], limit=limit, message_ids=ids or None, again=again
        )

    name, done = ask(url, send_back)
    if json:
        failed = [each._asdict() for each in done.failed]
        shape = {"topic": topic, "subscription": name, "count": done.count, "failed": failed}
        print_json({**shape, "has_more": done.has_more})
    else:
        letters = "letter" if done.count == 1 else "letters"
        print_lines(f"{done.count} {letters} of subscription {name!r} sent back to topic {topic!r}")
        for each in done.failed:
            print_lines(f"letter {each.message_id} was not: {each.reason}")
        if done.has_more:
            print_lines("more letters remain: run it again to send them back")
    if done.failed:
        raise typer.Exit(1)


@commands.command()
def purge(
    topic: Topic,
    *,
    subscription: Annotated[
        str | None, typer.Option(help="Only those of this subscription.", show_default="all")
    ] = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    json: AsJson = False,
) -> None:
    """Delete dead letters for good: all that lie in the dead letter topic."""

    async def places(queues: AsyncQueues) -> list[str]:
        names = await _subscriptions(queues, topic)
        wanted = names if subscription is None else [subscription]
        found = {(await queues.describe(topic, name)).dead_letter_topic for name in wanted}
        # Letters of several may lie in one topic, and go with it.
        others = [
            f"{each.topic}/{each.name}"
            for each in await queues.list()
            if each.dead_letter_topic in found and not (each.topic == topic and each.name in wanted)
        ]
        if others:
            raise InvalidRequest(
                f"letters of {', '.join(others)} lie in {', '.join(sorted(found))} too, and would "
                "go with these: purge them together, or let each have a dead letter topic"
            )
        return sorted(found)

    found = ask(url, places)
    confirm(f"Delete all messages of {', '.join(found)}?", yes=yes)
    counts = {name: ask(url, partial(_purged, name)) for name in found}
    if json:
        for name, count in counts.items():
            print_json({"topic": topic, "dead_letter_topic": name, "deleted": count})
    else:
        for name, count in counts.items():
            print_lines(f"{count} {'letter' if count == 1 else 'letters'} deleted from {name!r}")


async def _purged(name: str, queues: AsyncQueues) -> int:
    try:
        return await queues.purge(name)
    except UnknownTopic:
        # It is made when the first letter comes.
        return 0


async def _subscriptions(queues: AsyncQueues, topic: str) -> list[str]:
    """Names of a topic's subscriptions, at least one. Raises InvalidRequest if there is none."""
    if names := [each.name for each in await queues.list(topic)]:
        return names
    sources = sorted(
        {each.topic for each in await queues.list() if each.dead_letter_topic == topic}
    )
    if sources:
        raise InvalidRequest(
            f"{topic!r} is where dead letters lie: name the topic that they were first sent to: "
            f"{', '.join(sources)}"
        )
    raise InvalidRequest(
        f"topic {topic!r} has no subscriptions and so no dead letters: `millstream queue list` "
        "shows what there is"
    )


async def _counts(queues: AsyncQueues, topic: str, names: list[str]) -> list[LetterCounts]:
    pages = [await queues.browse(topic, name, limit=1, counts=True) for name in names]
    return [page.counts for page in pages if page.counts is not None]


async def _letters(
    queues: AsyncQueues, topic: str, names: list[str], *, at_once: int, state: LetterState
) -> AsyncGenerator[tuple[str, DeadLetter], None]:
    """All letters of some subscriptions, with whose they are."""
    at_once = min(at_once, _AT_ONCE)
    for name in names:
        page = await queues.browse(topic, name, limit=at_once, state=state)
        for letter in page.letters:
            yield name, letter
        for partition, first_offset in page.next_offsets.items():
            offset, next_offset = -1, first_offset
            while next_offset != offset:
                offset = next_offset
                page = await queues.browse(
                    topic, name, partition=partition, offset=offset, limit=at_once, state=state
                )
                for letter in page.letters:
                    yield name, letter
                next_offset = page.next_offsets.get(partition, offset)


def _row(name: str, letter: DeadLetter) -> tuple[object, ...]:
    source = f"{letter.source_partition}:{letter.source_offset}"
    return (
        letter.id,
        name,
        "yes" if letter.is_replayed else "",
        source,
        letter.delivery_count,
        _time(letter),
        letter.key,
        letter.reason,
        letter.value,
    )


def _time(letter: DeadLetter) -> str:
    try:
        return letter.timestamp.strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        # Who sent it may have given it any number.
        return str(letter.timestamp_ms)


def _shape(name: str, letter: DeadLetter) -> dict[str, Any]:
    """As the broker's HTTP API has it, and whose it is."""
    return {
        "topic": letter.topic,
        "subscription": name,
        "message_id": letter.id,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp_ms,
        "source_partition": letter.source_partition,
        "source_offset": letter.source_offset,
        "delivery_count": letter.delivery_count,
        "replayed": letter.is_replayed,
        "reason": letter.reason,
        **content(letter.key, letter.value, letter.headers),
    }
