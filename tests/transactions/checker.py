"""Judges a history of transactional clients: what is wrong with it, if anything.

It knows what clients did and what they were told, and nothing of the broker. It never guesses: what
may have happened or not (an answer that was lost, a worker that was killed) is held against nobody,
unless it happened by half.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.transactions.anomaly import Anomaly
from tests.transactions.history import Event
from tests.transactions.reader_checks import reader_anomalies
from tests.transactions.reading import Readings
from tests.transactions.write_checks import write_anomalies
from tests.transactions.write_ledger import WriteLedger


def check(history: Sequence[Event]) -> list[Anomaly]:
    ledger = WriteLedger(history)
    readings = Readings(history)
    return [*write_anomalies(ledger, readings), *reader_anomalies(ledger, readings)]
