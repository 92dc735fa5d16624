"""`millstream replay`: rows of a Delta table or of Parquet files, sent to a topic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millstream.cli.printout import AsJson, print_json, print_lines
from millstream.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, pairs
from millstream.errors import MissingExtra


def replay(
    source: Annotated[
        str, typer.Argument(help="A Delta table, a Parquet file or a folder of such.")
    ],
    topic: Annotated[str, typer.Argument(help="The topic to send to.")],
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    key: Annotated[
        str | None, typer.Option(help="Column for the key.", show_default="key, if there is one")
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(help="Column for the value.", show_default="value, else the row as JSON"),
    ] = None,
    order_by: Annotated[
        str, typer.Option(help="Columns to sort by, with commas between.", show_default="none")
    ] = "",
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="Send to what column partition says.")
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Create the topic with so many, if it is not there."),
    ] = None,
    timeout_s: Annotated[
        int, typer.Option("--timeout", min=1, help="Seconds until the broker gives up on it.")
    ] = 900,
    settings: Annotated[
        list[str] | None,
        typer.Option("--setting", "-X", help="For the connection, as security.protocol=SSL."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Send the rows of a Delta table or of Parquet files to a topic, all of them or none."""
    try:
        from millstream.spark.lake.replay import ReplayPlan
        from millstream.spark.lake.replay import replay as send
    except ModuleNotFoundError as missing:
        raise MissingExtra(what="replay", package=missing.name or "deltalake") from missing
    from millstream.client.kafka import Cluster, ClusterSettings
    from millstream.clock import SystemClock

    plan = ReplayPlan(
        source=source,
        topic=topic,
        key=key,
        value=value,
        order_by=tuple(name.strip() for name in order_by.split(",") if name.strip()),
        keeps_partitions=keep_partitions,
        transaction_timeout_ms=timeout_s * 1000,
    )
    connection = ClusterSettings.from_options(
        {
            "bootstrap.servers": bootstrap,
            **pairs(settings or (), "-X", "security.protocol=SSL"),
        }
    )
    with Cluster(connection) as cluster:
        if partitions is not None:
            cluster.create_topic(topic, partitions, exist_ok=True)
        count = send(cluster, plan, clock=SystemClock(), tell=_Progress().tell)
    if json:
        print_json({"source": source, "topic": topic, "rows": count})
    else:
        print_lines(f"{count} rows of {source} sent to topic {topic!r}")


class _Progress:
    """A line that counts, for a person who waits."""

    _STEP = 100_000

    def __init__(self) -> None:
        self._next = self._STEP

    def tell(self, count: int) -> None:
        if count >= self._next and sys.stderr.isatty():
            print(f"\r{count} rows", end="\r", file=sys.stderr, flush=True)
            self._next = count + self._STEP
