"""`millstream queue`: the queues of a running broker, and how they are doing."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.printout import AsJson, print_json, print_lines, print_table
from millstream.cli.remote import DEFAULT_URL, Url, ask

commands = typer.Typer(
    no_args_is_help=True, help="Queues: topics whose messages are acknowledged one by one."
)

_LISTED = {
    "TOPIC": "topic",
    "SUBSCRIPTION": "name",
    "TYPE": "type",
    "BACKLOG": "backlog",
    "IN FLIGHT": "in_flight",
    "DELAYED": "delayed",
    "WAITING": "waiting",
    "DEAD": "dead",
}


@commands.command("list")
def list_queues(
    topic: Annotated[str | None, typer.Argument(help="Only those of this topic.")] = None,
    *,
    url: Url = DEFAULT_URL,
    json: AsJson = False,
) -> None:
    """List queues: the subscriptions of a topic, or of all."""
    found = [each._asdict() for each in ask(url, lambda queues: queues.list(topic))]
    if json:
        for shape in found:
            print_json(shape)
    elif found:
        rows = ([shape[field] for field in _LISTED.values()] for shape in found)
        print_table(list(_LISTED), rows)
    else:
        print_lines("there are no queues" if topic is None else f"topic {topic!r} has no queues")


@commands.command("describe")
def describe_queue(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    subscription: Annotated[str, typer.Argument(help="The name of the subscription.")],
    *,
    url: Url = DEFAULT_URL,
    json: AsJson = False,
) -> None:
    """Describe a queue: its settings, its consumers and where its messages are."""
    shape = ask(url, lambda queues: queues.describe(topic, subscription))._asdict()
    if json:
        print_json(shape)
    else:
        shape["consumers"] = ", ".join(shape["consumers"]) or None
        # As text, all of them to the left.
        rows = [
            (field, None if content is None else str(content)) for field, content in shape.items()
        ]
        print_table(("FIELD", "VALUE"), rows)
