"""`millstream topic`: the topics of a broker or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.printout import (
    AsJson,
    Yes,
    confirm,
    print_json,
    print_lines,
    print_table,
    size_text,
)
from millstream.cli.remote import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Connection,
    complete_topic,
    connected,
    pairs,
)
from millstream.errors import InvalidRequest, RefusedByBroker

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster, Place
    from millstream.client.kafka.administration import TopicListing

commands = typer.Typer(no_args_is_help=True, help="Topics: list, create, describe, alter, delete.")

Topic = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", help="A setting of it, as retention.ms=86400000.", metavar="NAME=VALUE"
    ),
]

_EXAMPLE = "retention.ms=86400000"


@commands.command("list")
def list_topics(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="The broker's own too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """List topics, with how many messages they hold and how large they are."""
    with connected(bootstrap, connection) as cluster:
        found = [
            each for each in cluster.administration.topics() if internal or not each.is_internal
        ]
        shapes = list(_summaries(cluster, found))
    if json:
        for shape in shapes:
            print_json(shape)
    elif shapes:
        rows = [
            (each["topic"], each["partitions"], each["messages"], size_text(each["bytes"]))
            for each in shapes
        ]
        print_table(("TOPIC", "PARTITIONS", "MESSAGES", "SIZE"), rows, right=("SIZE",))
    else:
        print_lines("there are no topics: `millstream topic create NAME` makes one")


@commands.command()
def create(
    topic: Annotated[str, typer.Argument(help="Its name.")],
    *,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, help="How many partitions it has.")
    ] = 1,
    settings: Settings = None,
    exist_ok: Annotated[
        bool, typer.Option("--if-absent", help="One that is there is fine too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Create a topic."""
    config = pairs(settings or (), "--set", _EXAMPLE)
    with connected(bootstrap, connection) as cluster, _settings_explained(config):
        cluster.create_topic(topic, partitions, config, exist_ok=exist_ok)
        count = len(cluster.partitions([topic])[topic])
    if json:
        print_json({"topic": topic, "partitions": count, "settings": config})
    else:
        print_lines(f"topic {topic!r} is there, with {_counted(count, 'partition')}")


@commands.command()
def describe(
    topic: Topic,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Describe a topic: its partitions with offsets and sizes, its settings with their origin."""
    with connected(bootstrap, connection) as cluster:
        shape = _description(cluster, topic)
    if json:
        print_json(shape)
        return
    partitions = shape["partitions"]
    total = size_text(sum(each["bytes"] for each in partitions))
    messages = _counted(sum(each["messages"] for each in partitions), "message")
    print_lines(f"topic {topic!r}: {messages} in {_counted(len(partitions), 'partition')}, {total}")
    print_lines("")
    print_table(
        ("PARTITION", "START", "END", "MESSAGES", "SIZE", "LEADER", "REPLICAS", "IN SYNC"),
        [
            (
                each["partition"],
                each["start_offset"],
                each["end_offset"],
                each["messages"],
                size_text(each["bytes"]),
                each["leader"],
                _numbers(each["replicas"]),
                _numbers(each["in_sync"]),
            )
            for each in partitions
        ],
        right=("SIZE",),
    )
    print_lines("")
    settings = shape["settings"]
    print_table(
        ("SETTING", "VALUE", "ORIGIN"),
        [(name, each["value"], each["origin"]) for name, each in settings.items()],
        elastic=("VALUE",),
    )


@commands.command()
def alter(
    topic: Topic,
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="How many it is to have in all."),
    ] = None,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", "-u", help="A setting to give back.", metavar="NAME"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Give a topic more partitions, or change its settings."""
    changes: dict[str, str | None] = {**pairs(settings or (), "--set", _EXAMPLE)}
    changes |= dict.fromkeys(unset or ())
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: give --partitions, --set or --unset")
    with connected(bootstrap, connection) as cluster, _settings_explained(changes):
        administration = cluster.administration
        [before] = administration.topics([topic])
        _check_growth(topic, len(before.partitions), partitions)
        if changes:
            administration.alter_settings(topic, changes)
        if partitions is not None and partitions != len(before.partitions):
            administration.add_partitions(topic, partitions)
        shape = _description(cluster, topic) if json else {}
    if json:
        print_json(shape)
        return
    if partitions is not None:
        print_lines(f"topic {topic!r} has {_counted(partitions, 'partition')}")
    for name, value in changes.items():
        told = "is the broker's again" if value is None else f"is {value}"
        print_lines(f"topic {topic!r}: {name} {told}")


@commands.command()
def delete(
    topic: Topic,
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Delete a topic with all its messages."""
    with connected(bootstrap, connection) as cluster:
        [found] = cluster.administration.topics([topic])
        [shape] = _summaries(cluster, [found])
        messages = _counted(shape["messages"], "message")
        confirm(f"Delete topic {topic!r} with {messages}?", yes=yes)
        cluster.administration.delete_topic(topic)
    if json:
        print_json({"topic": topic, "deleted": True})
    else:
        print_lines(f"topic {topic!r} is deleted")


def _summaries(cluster: Cluster, found: list[TopicListing]) -> Iterator[dict[str, Any]]:
    places = [(each.name, one.number) for each in found for one in each.partitions]
    starts, ends = _ends(cluster, places)
    sizes = cluster.administration.sizes(places) if places else {}
    for each in found:
        own = [(each.name, one.number) for one in each.partitions]
        yield {
            "topic": each.name,
            "internal": each.is_internal,
            "partitions": len(own),
            "messages": sum(ends[place] - starts[place] for place in own),
            "bytes": sum(sizes.get(place, 0) for place in own),
        }


def _description(cluster: Cluster, topic: str) -> dict[str, Any]:
    [found] = cluster.administration.topics([topic])
    places = [(topic, each.number) for each in found.partitions]
    starts, ends = _ends(cluster, places)
    sizes = cluster.administration.sizes(places)
    partitions = [
        {
            "partition": each.number,
            "start_offset": starts[topic, each.number],
            "end_offset": ends[topic, each.number],
            "messages": ends[topic, each.number] - starts[topic, each.number],
            "bytes": sizes.get((topic, each.number), 0),
            "leader": each.leader,
            "replicas": each.replicas,
            "in_sync": each.in_sync,
        }
        for each in found.partitions
    ]
    settings = {
        each.name: {"value": each.value, "origin": each.origin}
        for each in cluster.administration.settings(topic)
    }
    return {
        "topic": topic,
        "internal": found.is_internal,
        "partitions": partitions,
        "settings": settings,
    }


def _ends(cluster: Cluster, places: list[Place]) -> tuple[dict[Place, int], dict[Place, int]]:
    from millstream.client.kafka import EARLIEST, LATEST

    return cluster.offsets(places, EARLIEST), cluster.offsets(places, LATEST)


def _check_growth(topic: str, count: int, wanted: int | None) -> None:
    if wanted is not None and wanted < count:
        raise InvalidRequest(
            f"topic {topic!r} has {count} partitions and cannot have {wanted}: partitions are "
            "never taken away; create another topic"
        )


@contextmanager
def _settings_explained(changes: dict[str, Any]) -> Iterator[None]:
    """Let a broker's refusal of a setting say which name may have been meant."""
    try:
        yield
    except RefusedByBroker as error:
        hint = _meant(changes)
        if error.name == "INVALID_CONFIG" and hint and "did you mean" not in error.detail:
            error.detail = f"{error.detail}; {hint}" if error.detail else hint
        raise


def _meant(names: dict[str, Any]) -> str:
    from millstream.settings.overrides import TOPIC_SETTINGS

    strange = (name for name in names if name not in TOPIC_SETTINGS)
    close = [get_close_matches(name, TOPIC_SETTINGS, n=1) for name in strange]
    return "; ".join(f"did you mean {found[0]}?" for found in close if found)


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" + ("" if count == 1 else "s")


def _numbers(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
