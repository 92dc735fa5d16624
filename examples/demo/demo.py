"""`make demo`: a shop's events through a broker and a Spark pipeline, and what became of them.

Starts a broker with its data in a folder of its own, sends a seeded stream of orders, clicks and
malformed events while a pipeline works on them, stops both when all is done, and checks every row
of the result against what was sent. Exits with 1 when anything was lost or is there twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import outcome
import shop
from rich.console import Console

from millstream.client.kafka import LATEST, Cluster
from millstream.errors import MillstreamError
from millstream.records import Record, build
from millstream.spark.environment import prepare_spark

HERE = Path(__file__).resolve().parent
TOPIC, REVENUE, LETTERS = "shop.events", "shop.revenue", "shop.dead-letters"
PARTITIONS = 4
QUERIES = ("table", "revenue", "dead-letters")
MARK = "made-by-the-demo"
CHUNK = 500
TELL_S = 3
START_S, FINISH_S, STOP_S = 300, 600, 120

console = Console(highlight=False)
say = partial(console.print, soft_wrap=True)


class Failed(Exception):
    """The demo cannot go on; the message says why."""


def main() -> int:
    wishes = _wishes()
    home = Path(wishes.directory).resolve()
    begun_s = time.monotonic()
    # What it has started ends with it.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: sys.exit(1))
    try:
        prepare_spark()
        _fresh(home)
        sent = _run(home, wishes)
        is_right = _check_and_draw(home, sent)
    except (Failed, MillstreamError) as failure:
        say(f"[bold red]the demo failed:[/] {failure}")
        return 1
    except KeyboardInterrupt:
        say("the demo was stopped, and so is all that it started")
        return 130
    say(f"\ndone in {time.monotonic() - begun_s:.0f} s")
    _tell_what_next(home)
    return 0 if is_right else 1


def _wishes() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=150_000, help="how many to send")
    parser.add_argument("--seconds", type=float, default=20, help="how long to send them")
    parser.add_argument("--seed", type=int, default=7, help="another one, another day")
    parser.add_argument("--directory", default="data/demo", help="for all that is made")
    return parser.parse_args()


def _fresh(home: Path) -> None:
    """An empty folder; what an earlier run left in it goes."""
    if home.exists() and any(home.iterdir()):
        if not (home / MARK).exists():
            raise Failed(f"{home} holds something else: choose another folder with --directory")
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True)
    (home / MARK).touch()


# Running


def _run(home: Path, wishes: argparse.Namespace) -> list[shop.Event]:
    kafka, http = f"127.0.0.1:{_free_port()}", f"127.0.0.1:{_free_port()}"
    flags = ["--data-dir", str(home / "broker"), "--kafka", kafka, "--http", http]
    broker = [sys.executable, "-m", "millstream", "serve", *flags, "--pylogstreams", "off"]
    with _process(broker, home / "broker.log", {}) as serving:
        _until(lambda: _progress(http) is not None, START_S, "the broker was ready", serving, home)
        say(f"broker    {kafka} (Kafka), http://{http} (HTTP), data in {home / 'broker'}")
        with Cluster(kafka) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            return _feed_pipeline(home, wishes, cluster, kafka=kafka, http=http)


def _feed_pipeline(
    home: Path, wishes: argparse.Namespace, cluster: Cluster, *, kafka: str, http: str
) -> list[shop.Event]:
    # On a terminal the pipeline shows its progress itself.
    log = None if console.is_terminal else home / "pipeline.log"
    run = [sys.executable, "-m", "millstream", "pipeline", "run", str(HERE / "pipeline.yaml")]
    say(f"pipeline  {HERE / 'pipeline.yaml'}: Spark is starting, which takes some seconds")
    with _process(run, log, {"BROKER": kafka, "DEMO_HOME": str(home)}) as working:

        def is_running() -> bool:
            return (_progress(http) or {}).get("state") == "running"

        _until(is_running, START_S, "the pipeline ran", working, home)
        sent = _send(cluster, wishes, http)
        say(f"sent      {len(sent):,} events; waiting until the pipeline has read them all")
        ends = cluster.offsets([(TOPIC, number) for number in range(PARTITIONS)], LATEST)

        def has_read_all() -> bool:
            _tell_progress(http, len(sent))
            groups = [cluster.committed(f"shop.{query}", list(ends)) for query in QUERIES]
            return all(group == ends for group in groups) and _are_windows_told(cluster, sent)

        _until(has_read_all, FINISH_S, "the pipeline had read all", working, home, TELL_S)
    return sent


def _send(cluster: Cluster, wishes: argparse.Namespace, http: str) -> list[shop.Event]:
    """Send the events over some time, as a shop would. Batches that are sent again count once."""
    producer_id, epoch = cluster.transactions.init("demo-shop", 60_000)
    sequences = [0] * PARTITIONS
    sent: list[shop.Event] = []
    begun_s = told_s = time.monotonic()
    with cluster.producer() as producer:
        coming = shop.events(wishes.events, wishes.seed)
        while chunk := list(islice(coming, CHUNK)):
            for number in range(PARTITIONS):
                now_ms = time.time_ns() // 1_000_000
                mine = [each for each in chunk if hash_of(each.key) % PARTITIONS == number]
                records = [Record(n, now_ms, e.key, e.value) for n, e in enumerate(mine)]
                if records:
                    batch = build(
                        records,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=sequences[number],
                    )
                    sequences[number] += len(records)
                    producer.send((TOPIC, number), bytes(batch))
            producer.flush()
            sent += chunk
            due_s = begun_s + wishes.seconds * len(sent) / wishes.events
            time.sleep(max(due_s - time.monotonic(), 0))
            if time.monotonic() - told_s > TELL_S:
                told_s = time.monotonic()
                _tell_progress(http, len(sent))
    return sent


def _are_windows_told(cluster: Cluster, sent: list[shop.Event]) -> bool:
    """They come a batch later than what closed them."""
    orders = [each.order for each in sent if each.order is not None]
    wanted = outcome.expected_revenue(orders)
    return len(outcome.revenue(cluster, REVENUE)) >= len(wanted)


def hash_of(key: bytes) -> int:
    """The same in every process, unlike Python's own."""
    return int.from_bytes(key[-4:], "big") % 997


def _tell_progress(http: str, sent: int) -> None:
    """As the broker knows it. On a terminal the pipeline shows more, and by itself."""
    if console.is_terminal:
        return
    queries = {each["sink"]: each for each in (_progress(http) or {}).get("queries", ())}
    read = min((each["rows_in"] for each in queries.values()), default=0)
    made = {"in the table": "table", "sums": "revenue", "bad rows": "dead-letters"}
    rows = {what: queries.get(sink, {}).get("rows_out", 0) for what, sink in made.items()}
    told = ", ".join(f"{what} {count:,}" for what, count in rows.items())
    say(f"          sent {sent:,}; pipeline: read {read:,}, {told}")


def _progress(http: str) -> dict[str, Any] | None:
    """What the broker knows of the pipeline, {} for nothing yet; None if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{http}/pipelines", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["pipelines"]
    except (urllib.error.URLError, OSError):
        return None
    return next((each for each in found if each["pipeline"] == "shop"), {})


# Checking


def _check_and_draw(home: Path, sent: list[shop.Event]) -> bool:
    orders = [each.order for each in sent if each.order is not None]
    bad = sum(each.is_bad for each in sent)
    in_table = outcome.table(home / "orders")
    kafka = f"127.0.0.1:{_free_port()}"
    flags = ["--data-dir", str(home / "broker"), "--kafka", kafka, "--http", "off"]
    broker = [sys.executable, "-m", "millstream", "serve", *flags, "--pylogstreams", "off"]
    with _process(broker, home / "broker.log", {}), Cluster(kafka) as cluster:
        reasons = outcome.reasons(cluster, LETTERS)
        revenue = outcome.revenue(cluster, REVENUE)
    expected = outcome.expected_revenue(orders)
    lost = len(set(orders) - set(in_table))
    twice = len(in_table) - len(set(in_table))
    strange = len(set(in_table) - set(orders))
    total = sum(expected.values())
    say("\n[bold]The result, read back in full after a restart of the broker[/]")
    checks = [
        _check(f"orders produced {len(orders):,}, in the table {len(in_table):,}: none lost", lost),
        _check("no duplicates", twice),
        _check("none that was not sent", strange),
        _check(f"malformed {bad:,}, in {LETTERS} {reasons.total():,}", bad - reasons.total()),
        _check(
            f"revenue {total:,} in {len(revenue)} windows of {REVENUE}, each reported once",
            sorted(revenue) != sorted(expected.items()),
        ),
    ]
    for reason, count in reasons.most_common():
        say(f"     {count:6,} x {reason}")
    from chart import draw

    draw(dict(revenue), home / "revenue.png")
    return all(checks)


def _check(what: str, wrong: int) -> bool:
    say(f"  [green]ok[/] {what}" if not wrong else f"  [bold red]WRONG[/] {what} ({int(wrong)})")
    return not wrong


def _tell_what_next(home: Path) -> None:
    program = Path(sys.executable).parent
    table = f"DeltaTable('{home / 'orders'}')"
    look = f"from deltalake import DeltaTable; print({table}.to_pandas())"
    say(
        f"""
[bold]Where it is[/]
  chart             {home / "revenue.png"}
  table of orders   {home / "orders"}
  data of broker    {home / "broker"}
  pipeline          {HERE / "pipeline.yaml"}

[bold]What to try next[/]
  {program / "millstream"} serve --data-dir {home / "broker"}
      then, beside it:
  curl 'localhost:8000/topics/{LETTERS}/messages?offset=0&limit=3'
  curl localhost:8000/groups/shop.table
  curl localhost:8000/pipelines/shop
  {program / "python"} -c "{look}"
  DEMO_HOME={home} {program / "millstream"} pipeline run {HERE / "pipeline.yaml"}
      goes on where it was: send events to {TOPIC} and watch them come out"""
    )


# Processes


@contextmanager
def _process(
    command: list[str], log: Path | None, more: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is asked to end, and given time for it, at the end of the block.

    In a session of its own, so that Ctrl-C reaches this process alone: the pipeline must end before
    the broker, which it would wait for.
    """
    with ExitStack() as files:
        told = None if log is None else files.enter_context(log.open("ab"))
        process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            env={**os.environ, **more},
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
        finally:
            # Also when a second Ctrl-C ends the wait.
            process.kill()
            process.wait()


def _until(
    holds: Callable[[], bool],
    within_s: float,
    what: str,
    process: subprocess.Popen[bytes],
    home: Path,
    every_s: float = 0.2,
) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        if process.poll() is not None:
            raise Failed(f"a process ended before {what}: see the logs in {home}")
        if time.monotonic() > deadline_s:
            raise Failed(f"not within {within_s:.0f} s: {what}")
        time.sleep(every_s)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
