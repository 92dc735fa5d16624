"""`millstream group`: consumer groups, who is in them and how far behind they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli import moments
from millstream.cli.moments import parse_moment
from millstream.cli.printout import AsJson, Yes, confirm, print_json, print_lines, print_table
from millstream.cli.remote import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Connection,
    complete_group,
    complete_topic,
    connected,
)
from millstream.errors import InvalidRequest, NonEmptyGroup, NotFound, UnknownPartition

if TYPE_CHECKING:
    from millstream.client.kafka import Cluster, Place
    from millstream.client.kafka.group_administration import GroupDescription

Bounds = tuple[int, int]
"""Where a partition starts and ends."""

commands = typer.Typer(no_args_is_help=True, help="Consumer groups: list, describe, reset, delete.")

Group = Annotated[str, typer.Argument(help="The group.", autocompletion=complete_group)]


@commands.command("list")
def list_groups(
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """List groups, with how far behind each is."""
    with connected(bootstrap, connection) as cluster:
        shapes: list[dict[str, Any]] = []
        for listed in cluster.groups.list():
            offsets = cluster.groups.offsets(listed.name)
            topics = {topic for topic, _ in offsets}
            lags = _lags(offsets, _logs(cluster, topics))
            shapes.append(
                {
                    "group": listed.name,
                    "state": listed.state,
                    "type": listed.kind,
                    "topics": sorted(topics),
                    "lag": sum(lags.values()),
                    "never_read": sum(
                        lag > 0 and place not in offsets for place, lag in lags.items()
                    ),
                }
            )
    if json:
        for shape in shapes:
            print_json(shape)
    elif shapes:
        rows = [
            (
                each["group"],
                each["state"],
                each["type"],
                each["lag"],
                each["never_read"] or "",
                ", ".join(each["topics"]),
            )
            for each in shapes
        ]
        titles = ("GROUP", "STATE", "TYPE", "LAG", "NEVER READ", "TOPICS")
        print_table(titles, rows, elastic=("TOPICS",), right=("LAG", "NEVER READ"))
    else:
        print_lines("there are no groups")


@commands.command()
def describe(
    group: Group,
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Describe a group: its members, and the lag of each partition."""
    with connected(bootstrap, connection) as cluster:
        found = cluster.groups.describe(group)
        logs = _logs(cluster, {topic for topic, _ in _places(found, ())})
    shape = _shape(found, logs)
    if json:
        print_json(shape)
        return
    print_lines(
        f"group {group!r}: {found.state}, {len(found.members)} members, lag {shape['lag']:,}"
        + (f" ({shape['never_read']} partitions never read)" if shape["never_read"] else "")
        + (f", assigned by {found.assignor}" if found.assignor else "")
    )
    if shape["partitions"]:
        titles = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST")
        rows = [
            (
                each["topic"],
                each["partition"],
                "never read" if each["never_read"] and each["lag"] else each["committed_offset"],
                *(each[field] for field in ("end_offset", "lag", "member", "client", "host")),
            )
            for each in shape["partitions"]
        ]
        print_lines("")
        print_table(titles, rows, elastic=("MEMBER",), right=("COMMITTED", "END", "LAG"))
    idle = [member for member in found.members if not member.places]
    if idle:
        print_lines("", f"{len(idle)} members have no partition: there are more than partitions")


@commands.command()
def reset(
    group: Group,
    *,
    to: Annotated[str, typer.Option("--to", help=f"Where to: {moments.FORMS}.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Only this topic, or TOPIC:PARTITION.",
            show_default="all that it reads",
            autocompletion=complete_topic,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Let a group without members read on from elsewhere."""
    moment = parse_moment(to, "--to")
    with connected(bootstrap, connection) as cluster:
        known = cluster.groups.offsets(group)
        places = _chosen(cluster, group, known, topics or ())
        targets = moments.offsets_at(cluster, places, moment)
        if not dry_run:
            _check_empty(cluster, group)
            confirm(f"Move group {group!r} in {len(places)} partitions?", yes=yes)
            cluster.commit(group, targets)
    shapes = [
        {
            "group": group,
            "topic": topic,
            "partition": number,
            "from_offset": known.get((topic, number)),
            "to_offset": targets[topic, number],
            "dry_run": dry_run,
        }
        for topic, number in places
    ]
    if json:
        for shape in shapes:
            print_json(shape)
        return
    rows = [
        (each["topic"], each["partition"], each["from_offset"], each["to_offset"])
        for each in shapes
    ]
    print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows, right=("FROM", "TO"))
    if dry_run:
        print_lines("", "nothing was changed: leave --dry-run away to do it")


@commands.command()
def delete(
    group: Group,
    *,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    connection: Connection = None,
    json: AsJson = False,
) -> None:
    """Forget a group without members, with what it has committed."""
    with connected(bootstrap, connection) as cluster:
        cluster.groups.describe(group)
        confirm(f"Delete group {group!r} with its offsets?", yes=yes)
        cluster.groups.delete(group)
    if json:
        print_json({"group": group, "deleted": True})
    else:
        print_lines(f"group {group!r} is deleted")


def _shape(found: GroupDescription, logs: Mapping[Place, Bounds]) -> dict[str, Any]:
    owners = {place: member for member in found.members for place in member.places}
    lags = _lags(found.offsets, logs)
    partitions = []
    for place in _places(found, logs):
        owner = owners.get(place)
        partitions.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed_offset": found.offsets.get(place),
                "end_offset": logs[place][1] if place in logs else None,
                "lag": lags.get(place),
                "never_read": place not in found.offsets,
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.host if owner else None,
            }
        )
    return {
        "group": found.name,
        "state": found.state,
        "type": found.kind,
        "assignor": found.assignor,
        "lag": sum(lags.values()),
        "never_read": sum(lag > 0 and place not in found.offsets for place, lag in lags.items()),
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [{"topic": topic, "partition": n} for topic, n in member.places],
            }
            for member in found.members
        ],
        "partitions": partitions,
    }


def _places(found: GroupDescription, logs: Collection[Place]) -> list[Place]:
    """All partitions of the topics that a group reads, and those it knows that are gone."""
    owned = [place for member in found.members for place in member.places]
    return sorted({*found.offsets, *owned, *logs})


def _logs(cluster: Cluster, topics: Collection[str]) -> dict[Place, Bounds]:
    """Where each partition starts and ends, of those topics that exist."""
    from millstream.client.kafka import EARLIEST, LATEST

    places = [
        (each.name, partition.number)
        for each in cluster.administration.topics()
        if each.name in topics
        for partition in each.partitions
    ]
    starts, ends = cluster.offsets(places, EARLIEST), cluster.offsets(places, LATEST)
    return {place: (starts[place], ends[place]) for place in places}


def _lags(offsets: Mapping[Place, int], logs: Mapping[Place, Bounds]) -> dict[Place, int]:
    """What a group has not read; of a partition without a committed offset, all there is."""
    return {place: max(end - offsets.get(place, start), 0) for place, (start, end) in logs.items()}


def _check_empty(cluster: Cluster, group: str) -> None:
    """Members would go on from where they are, and commit that."""
    try:
        if cluster.groups.describe(group).members:
            raise NonEmptyGroup(group)
    except NotFound:
        # One that nobody has used begins with what is committed for it.
        return


def _chosen(
    cluster: Cluster, group: str, known: Mapping[Place, int], words: Collection[str]
) -> list[Place]:
    if not words:
        if not known:
            raise InvalidRequest(
                f"group {group!r} has committed nothing: say what it is to read with --topic"
            )
        return sorted(known)
    chosen: list[Place] = []
    for word in words:
        topic, colon, number = word.partition(":")
        numbers = cluster.partitions([topic])[topic]
        if not colon:
            chosen += [(topic, each) for each in numbers]
        elif number.isascii() and number.isdigit():
            if int(number) not in numbers:
                raise UnknownPartition(topic, int(number), count=len(numbers))
            chosen.append((topic, int(number)))
        else:
            raise typer.BadParameter(f"{word!r} for --topic: give TOPIC or TOPIC:PARTITION")
    return sorted(set(chosen))
