"""A shop's events, the same for the same seed: people look around, some of them buy.

Some events are malformed, as they are in any real stream: cut off, of the wrong type, not JSON, not
even text. Each event is for good what it is made as, so that what comes out can be checked against
what went in.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

OPENING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
DAY = timedelta(hours=3)
"""The time that all events are spread over, however many there are."""
WINDOW = timedelta(minutes=5)
CATEGORIES = {
    # Share of the orders, and the prices of an item in cents.
    "books": (30, 599, 3999),
    "garden": (12, 899, 14999),
    "kitchen": (18, 499, 8999),
    "music": (14, 299, 2499),
    "shoes": (16, 2999, 15999),
    "toys": (10, 399, 5999),
}
CUSTOMERS = 5000
ORDERED, MALFORMED = 0.22, 0.006


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    category: str
    amount: Decimal
    at: datetime

    @property
    def window(self) -> datetime:
        return self.at - (self.at - OPENING) % WINDOW


@dataclass(frozen=True, slots=True)
class Event:
    """A record to be. Exactly if it is a good order it has one; `is_bad` if it cannot be read."""

    key: bytes
    value: bytes
    order: Order | None = None
    is_bad: bool = False


def events(count: int, seed: int) -> Iterator[Event]:
    """Events in about the order of their times. The last one, an order, is an hour later.

    It tells that time has gone on: only then are the windows before it complete.
    """
    chance = random.Random(seed)  # noqa: S311 - it has to be the same again
    for number in range(count):
        at = OPENING + DAY * (number / count) - timedelta(milliseconds=chance.randrange(20_000))
        at = max(at.replace(microsecond=at.microsecond // 1000 * 1000), OPENING)
        customer = f"customer-{int(chance.triangular(0, CUSTOMERS, 0)):04d}"
        if chance.random() < ORDERED * _busy(number / count):
            made = _order(chance, customer, f"order-{number:08d}", at)
        else:
            made = _click(chance, customer, at)
        if chance.random() < MALFORMED:
            made = _spoilt(chance, made)
        yield made
    yield _order(chance, "customer-late", f"order-{count:08d}", OPENING + DAY + timedelta(hours=1))


def _busy(share: float) -> float:
    """People buy most when the morning is half over."""
    return 0.6 + 0.8 * (1 - abs(2 * share - 1))


def _click(chance: random.Random, customer: str, at: datetime) -> Event:
    category = chance.choice(tuple(CATEGORIES))
    page = f"/{category}/{chance.randrange(400)}"
    return _event(customer, {"type": "click", "at": _text(at), "customer": customer, "page": page})


def _order(chance: random.Random, customer: str, order_id: str, at: datetime) -> Event:
    shares = [share for share, _, _ in CATEGORIES.values()]
    [category] = chance.choices(tuple(CATEGORIES), shares)
    _, cheapest, dearest = CATEGORIES[category]
    quantity = chance.choice((1, 1, 1, 2, 2, 3))
    cents = quantity * int(chance.triangular(cheapest, dearest, cheapest))
    amount = Decimal(cents).scaleb(-2)
    fields = {
        "type": "order",
        "at": _text(at),
        "customer": customer,
        "order_id": order_id,
        "category": category,
        "quantity": quantity,
        "amount": float(amount),
    }
    return _event(customer, fields, Order(order_id, category, amount, at))


def _event(customer: str, fields: dict[str, object], order: Order | None = None) -> Event:
    return Event(customer.encode(), json.dumps(fields).encode(), order)


def _spoilt(chance: random.Random, good: Event) -> Event:
    fields = json.loads(good.value)
    bad = chance.choice(
        (
            good.value[: len(good.value) // 2],
            b"<event>" + good.key + b"</event>",
            json.dumps({**fields, "quantity": "many"}).encode(),
            json.dumps({name: fields[name] for name in fields if name != "at"}).encode(),
            b"\xff\xfe" + good.value,
        )
    )
    return Event(good.key, bad, is_bad=True)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
