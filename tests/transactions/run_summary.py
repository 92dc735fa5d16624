"""What a run came to, in numbers, so that one which did nothing is not taken for a good one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.transactions.history import NO_TRANSACTION, Action, Event, Phase
from tests.transactions.write_ledger import Outcome, WriteLedger

# What clients call it when somebody else has their transactional id.
FENCED_ERRORS = {
    "_FENCED",
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "ProducerFenced",
    "InvalidProducerEpoch",
}


def summary(history: Sequence[Event]) -> Counter[str]:
    found: Counter[str] = Counter()
    ledger = WriteLedger(history)
    fenced = {
        (event.worker, event.transaction)
        for event in history
        if event.error in FENCED_ERRORS and event.transaction != NO_TRANSACTION
    }
    for key, transaction in ledger.transactions.items():
        found["transactions"] += 1
        outcome = transaction.outcome
        found[f"{outcome} transactions"] += 1
        found["writes in transactions"] += len(transaction.writes)
        found["asked to abort"] += transaction.aborted
        if transaction.stalled and outcome is not Outcome.COMMITTED:
            found["timed out"] += 1
        elif key in fenced:
            found["fenced"] += 1
    for write in ledger.writes.values():
        found["plain writes"] += write.transaction is None and write.is_acked
        found["results"] += bool(write.sources) and write.outcome is Outcome.COMMITTED
    for event in history:
        if event.action is Action.POLL and event.phase is Phase.OK:
            found["reads"] += len(event.records)
        found["assignments in groups"] += event.action is Action.ASSIGN and bool(event.group)
        found["seeks"] += event.action is Action.SEEK
    found["workers"] = len({event.worker for event in history})
    return found
