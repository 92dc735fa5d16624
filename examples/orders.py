"""Orders that workers share: each is charged once, and what cannot be charged is put aside.

    python examples/orders.py work                        in one terminal, or in several
    python examples/orders.py place ada tea 3             in another one
    python examples/orders.py place bob gold 1            this one is refused, again and again
    python examples/orders.py letters                     what was put aside, and why
    python examples/orders.py replay                      lets it be tried once more
    python examples/orders.py --demo                      shows it all, and ends

An order is an event in a topic. Workers take orders from a queue on it; one that fails comes
again, a little later each time, and after three times it goes to the dead letters. Who has paid is
an event, too, which others may read. Needs a running broker: start one with `millstream serve`.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime

from millstream.client import Connection, Message, connect
from millstream.errors import MillstreamError, Unreachable

QUEUE = "billing"
PRICES = {"tea": 4, "coffee": 3, "gold": 1900}
LIMIT = 1000


class NotCharged(Exception):
    """The customer's bank says no."""


def set_up(broker: Connection, topic: str) -> None:
    """May be called by everyone: what is there already stays as it is."""
    broker.queues.create(topic, QUEUE, max_deliveries=3, redelivery_min=0.05, redelivery_max=1)


def place(broker: Connection, topic: str, customer: str, item: str, count: int) -> None:
    order = {"customer": customer, "item": item, "count": count}
    # From when this returns the order survives a crash.
    sent = broker.send(topic, json.dumps(order), key=customer)
    print(f"order {sent.id}: {customer} wants {count} {item}", flush=True)


def charge(order: dict[str, object]) -> int:
    """Raises NotCharged, KeyError."""
    amount = PRICES[str(order["item"])] * int(str(order["count"]))
    if amount > LIMIT:
        raise NotCharged(f"{amount} EUR is more than {LIMIT}")
    return amount


def work(broker: Connection, topic: str, *, until_done: bool) -> None:
    """Charge what is ordered: for ever, or until no order waits."""
    with broker.subscribe(topic, subscription=QUEUE, prefetch=10) as orders:
        while not until_done or broker.queues.describe(topic, QUEUE).backlog:
            message = orders.receive(timeout_s=0.2)
            if message is not None:
                settle(broker, topic, message)


def settle(broker: Connection, topic: str, message: Message) -> None:
    try:
        order = json.loads(message.text)
        amount = charge(order)
    except (NotCharged, KeyError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        print(f"order {message.id}: attempt {message.delivery_count}: {reason}", flush=True)
        message.nack(reason=reason)
        return
    broker.send(f"{topic}.paid", json.dumps({**order, "amount": amount}), key=message.key)
    # Last: who fails before this gets the order again, and charges it twice rather than never.
    message.ack()
    print(f"order {message.id}: {order['customer']} has paid {amount} EUR", flush=True)


def letters(broker: Connection, topic: str) -> None:
    for letter in broker.queues.browse(topic, QUEUE).letters:
        print(f"order {letter.source_partition}:{letter.source_offset}: {letter.text}", flush=True)
        print(f"    {letter.delivery_count} attempts, the last: {letter.reason}", flush=True)


def replay(broker: Connection, topic: str) -> None:
    sent_back = broker.queues.replay(topic, QUEUE)
    print(f"{sent_back.count} orders will be tried again", flush=True)


def demo(broker: Connection) -> None:
    topic = f"orders-demo-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
    set_up(broker, topic)
    place(broker, topic, "ada", "tea", 3)
    place(broker, topic, "bob", "gold", 1)
    place(broker, topic, "eve", "coffee", 2)
    work(broker, topic, until_done=True)
    print("dead letters:")
    letters(broker, topic)
    print("gold has become cheap:")
    PRICES["gold"] = 900
    replay(broker, topic)
    work(broker, topic, until_done=True)
    with broker.subscribe(f"{topic}.paid", start="earliest") as paid:
        amounts = [json.loads(next(paid).text)["amount"] for _ in range(3)]
    print(f"paid in all: {sum(amounts)} EUR")
    broker.queues.delete(topic, QUEUE)
    for name in (topic, f"{topic}.paid", f"{topic}.dlq"):
        broker.topics.delete(name)


def obey(broker: Connection, chosen: argparse.Namespace) -> None:
    if chosen.demo:
        demo(broker)
        return
    set_up(broker, chosen.topic)
    if chosen.task == "place":
        customer, item, count = chosen.order
        place(broker, chosen.topic, customer, item, int(count))
    elif chosen.task == "work":
        work(broker, chosen.topic, until_done=chosen.until_done)
    elif chosen.task == "letters":
        letters(broker, chosen.topic)
    else:
        replay(broker, chosen.topic)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", choices=["place", "work", "letters", "replay"])
    parser.add_argument("order", nargs="*", help="to place: customer, item and count")
    parser.add_argument("--topic", default="orders", help="default: %(default)s")
    parser.add_argument("--until-done", action="store_true", help="work until no order waits")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the broker's HTTP door")
    parser.add_argument("--demo", action="store_true", help="show it, and end")
    chosen = parser.parse_args()
    if not chosen.demo and not chosen.task:
        parser.error("say place, work, letters or replay, or give --demo")
    if chosen.task == "place" and not (len(chosen.order) == 3 and chosen.order[2].isdecimal()):
        parser.error("place needs a customer, an item and a count: place ada tea 3")
    try:
        with connect(chosen.url) as broker:
            obey(broker, chosen)
    except Unreachable as error:
        sys.exit(str(error))
    except MillstreamError as error:
        sys.exit(f"the broker says: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; an order that was not done comes again")


if __name__ == "__main__":
    main()
