"""A chat room: whoever is in it sees what anyone says, and the last lines from before.

    python examples/chat.py ada        in one terminal
    python examples/chat.py bob        in another one; type lines, Ctrl-D leaves
    python examples/chat.py --demo     two people talk by themselves, and leave

A room is a topic, and a line is a message whose key is who said it. Needs a running broker:
start one with `millstream serve`.
"""

from __future__ import annotations

import argparse
import sys
import threading
from datetime import UTC, datetime

from millstream.client import Connection, Message, Subscription, connect
from millstream.errors import Unreachable

REMEMBERED_LINES = 10


def enter(broker: Connection, room: str) -> Subscription:
    """Be in a room, from a few lines before now on."""
    if room not in broker.topics.list():
        # One partition, so that all see all lines in one order.
        broker.topics.create(room, partitions=1)
    [log] = broker.topics.describe(room).partitions
    start = max(log.end_offset - REMEMBERED_LINES, log.start_offset)
    return broker.subscribe(room, start=start)


def shown(line: Message) -> str:
    who = (line.key or b"?").decode()
    return f"[{line.timestamp:%H:%M:%S}] {who}: {line.text}"


def chat(url: str, room: str, name: str) -> None:
    with connect(url) as broker:
        lines = enter(broker, room)

        def show() -> None:
            for line in lines:
                print(shown(line), flush=True)

        showing = threading.Thread(target=show)
        showing.start()
        try:
            for typed in sys.stdin:
                if typed.strip():
                    broker.send(room, typed.strip(), key=name)
        finally:
            # Who waits for lines is told that there will be no more.
            lines.close()
            showing.join()


DIALOGUE = [
    ("ada", "Hello! Is anybody here?"),
    ("bob", "I am. What are you up to?"),
    ("ada", "Writing a program that weaves algebra."),
    ("bob", "See you tomorrow, then."),
]


def demo(url: str) -> None:
    """Each says a line as soon as it has seen the one before."""
    room = f"chat-demo-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
    with connect(url) as broker:
        enter(broker, room).close()

        def talk(name: str) -> None:
            with connect(url) as mine, enter(mine, room) as lines:
                for speaker, text in DIALOGUE:
                    if speaker == name:
                        mine.send(room, text, key=name)
                    seen = next(lines)
                    if name == "ada":
                        print(shown(seen), flush=True)

        people = [threading.Thread(target=talk, args=(name,)) for name in ("ada", "bob")]
        for person in people:
            person.start()
        for person in people:
            person.join()
        broker.topics.delete(room)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="who you are")
    parser.add_argument("--room", default="lobby", help="where to go (default: %(default)s)")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the broker's HTTP door")
    parser.add_argument("--demo", action="store_true", help="show it, and end")
    chosen = parser.parse_args()
    if not chosen.demo and not chosen.name:
        parser.error("say who you are, or give --demo")
    try:
        if chosen.demo:
            demo(chosen.url)
        else:
            chat(chosen.url, chosen.room, chosen.name)
    except Unreachable as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
