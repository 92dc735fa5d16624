"""Log files of many machines, brought together: one file for each machine, each line once.

    python examples/log_collection.py collect collected/          in one terminal
    python examples/log_collection.py ship /var/log/dpkg.log      in another one
    python examples/log_collection.py --demo                      shows it, and ends

Shippers send the lines of a file, with the machine's name as their key, so that lines of one
machine stay in order. The collector appends them to files and remembers how far it has come: one
that was stopped goes on where it was. Needs a running broker: start one with `millstream serve`.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from millstream.client import Connection, NewMessage, connect
from millstream.errors import Unreachable

GROUP = "log-collectors"
LINES_AT_ONCE = 1000


def ship(broker: Connection, topic: str, machine: str, file: Path) -> int:
    """Send all lines of a file; return how many there were."""
    lines = file.read_text(errors="replace").splitlines()
    broker.send_many(topic, [NewMessage(line, key=machine) for line in lines])
    return len(lines)


def collect(broker: Connection, topic: str, directory: Path, *, once: bool) -> int:
    """Write what comes to files; for ever, or once until nothing is left. Returns how much."""
    directory.mkdir(parents=True, exist_ok=True)
    total = 0
    with broker.subscribe(topic, cursor=GROUP) as incoming:
        while not once or left(broker, topic):
            lines = incoming.receive_many(LINES_AT_ONCE)
            for line in lines:
                machine = (line.key or b"unknown").decode()
                # Names come from elsewhere: they must not lead out of the directory.
                safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in machine)
                with (directory / f"{safe}.log").open("a") as file:
                    file.write(line.text + "\n")
            # Only now: a collector that fails before this gets the lines again.
            incoming.ack(*lines)
            total += len(lines)
    return total


def left(broker: Connection, topic: str) -> int:
    """How many lines the collector has not had yet."""
    ends = {each.partition: each.end_offset for each in broker.topics.describe(topic).partitions}
    if GROUP in [each.name for each in broker.groups.list()]:
        for place in broker.groups.describe(GROUP).offsets:
            if place.topic == topic:
                ends[place.partition] -= place.offset or 0
    return sum(ends.values())


def demo(url: str) -> None:
    topic = f"logs-demo-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
    with tempfile.TemporaryDirectory() as home, connect(url) as broker:
        broker.topics.create(topic, partitions=3)
        collected = Path(home) / "collected"
        for day in ("Monday", "Tuesday"):
            for machine in ("web-1", "web-2", "db-1"):
                file = Path(home) / f"{machine}.txt"
                file.write_text("".join(f"{day} {n}: {machine} is fine\n" for n in range(100)))
                ship(broker, topic, machine, file)
            count = collect(broker, topic, collected, once=True)
            print(f"{day}: collected {count} lines, {left(broker, topic)} are left")
        for file in sorted(collected.iterdir()):
            lines = file.read_text().splitlines()
            print(f"{file.name}: {len(lines)} lines, from {lines[0]!r} to {lines[-1]!r}")
        broker.topics.delete(topic)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", choices=["ship", "collect"])
    parser.add_argument("path", nargs="?", type=Path, help="file to ship, or directory to fill")
    parser.add_argument("--machine", default=socket.gethostname(), help="whose lines they are")
    parser.add_argument("--topic", default="logs", help="default: %(default)s")
    parser.add_argument("--once", action="store_true", help="collect what there is, and end")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the broker's HTTP door")
    parser.add_argument("--demo", action="store_true", help="show it, and end")
    chosen = parser.parse_args()
    if not chosen.demo and not (chosen.task and chosen.path):
        parser.error("say ship FILE or collect DIRECTORY, or give --demo")
    try:
        if chosen.demo:
            demo(chosen.url)
            return
        with connect(chosen.url) as broker:
            if chosen.topic not in broker.topics.list():
                broker.topics.create(chosen.topic, partitions=3)
            if chosen.task == "ship":
                count = ship(broker, chosen.topic, chosen.machine, chosen.path)
            else:
                count = collect(broker, chosen.topic, chosen.path, once=chosen.once)
            print(f"{count} lines")
    except Unreachable as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("stopped; what was not acknowledged comes again")


if __name__ == "__main__":
    main()
