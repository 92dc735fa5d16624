"""What the demo made, read back in full: the table, the topic of revenue, the dead letters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from shop import Order

from millstream.client.kafka import EARLIEST, LATEST, Cluster, StreamFetcher
from millstream.records.arrow import ColumnReader

Window = tuple[datetime, str]
"""Its start, and the category."""
Revenue = dict[Window, Decimal]


def table(path: Path) -> list[Order]:
    """Every row of the table; not its statistics."""
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [Order(row["order_id"], row["category"], row["amount"], row["at"]) for row in rows]


def expected_revenue(orders: Sequence[Order]) -> Revenue:
    """Of all windows but the last one, which nothing has closed."""
    last = max(order.window for order in orders)
    revenue: Revenue = {}
    for order in orders:
        if order.window != last:
            place = (order.window, order.category)
            revenue[place] = revenue.get(place, Decimal(0)) + order.amount
    return revenue


def revenue(cluster: Cluster, topic: str) -> list[tuple[Window, Decimal]]:
    """Every record, in order."""
    told = []
    for row in records(cluster, topic, ("value",)):
        fields = json.loads(row["value"], parse_float=Decimal)
        window = (datetime.fromisoformat(fields["start"]), fields["category"])
        told.append((window, Decimal(fields["revenue"])))
    return told


def reasons(cluster: Cluster, topic: str) -> Counter[str]:
    """How many dead letters there are of each reason."""
    found: Counter[str] = Counter()
    for row in records(cluster, topic, ("value", "headers")):
        headers = {each["key"]: each["value"] for each in row["headers"] or ()}
        found[headers["millstream-reason"].decode()] += 1
    return found


def records(cluster: Cluster, topic: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """All committed records of a topic."""
    for number in cluster.partitions([topic])[topic]:
        place = (topic, number)
        start = cluster.offsets([place], EARLIEST)[place]
        end = cluster.offsets([place], LATEST, committed=True)[place]
        if start == end:
            continue
        reader = ColumnReader(topic, number, columns=columns, start=start, end=end, committed=True)
        for got in StreamFetcher(cluster, place, start=start, end=end, committed=True):
            for batch in reader.feed(got.records, got.aborted):
                yield from batch.to_pylist()
        for batch in reader.rest():
            yield from batch.to_pylist()
