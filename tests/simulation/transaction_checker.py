"""What must hold of transactions whatever happens, by what clients are told and readers see.

Readers look at any moment, and this is what they may see of a transaction. In a partition it is
visible (a reader of committed records has met it), hidden (such a reader has passed its records
and not been given them) or pending (such a reader has not come so far: the transaction, or an older
one of somebody else, is open there). Markers are written one partition after the other, so some of
a transaction may be visible while the rest is pending; but nothing of it is ever hidden when
something of it is visible, and pending does not last. Offsets of groups are one more such place.

What was visible once stays so, in its order, over all lives of the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from millstream.broker.partition import Partition
from millstream.settings.names import OFFSETS_TOPIC
from tests.fakes.committed_reader import CommittedReader
from tests.simulation.group_checker import Violation
from tests.simulation.transaction_broker import SOURCE, SimulatedBroker

Pair = tuple[int, int]
"""A producer's id and epoch."""
Place = tuple[bytes, int]
"""A topic's id and the number of a partition."""


class Outcome(Enum):
    """What its client knows of a transaction."""

    UNKNOWN = "unknown"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Fate(Enum):
    """What readers see of a transaction, in one place."""

    VISIBLE = "visible"
    HIDDEN = "hidden"
    PENDING = "pending"


@dataclass(eq=False)
class Attempt:
    """One transaction, as its client knows it."""

    number: int
    name: str
    pair: Pair
    began_ms: int
    timeout_ms: int
    outcome: Outcome = Outcome.UNKNOWN
    is_commit_sent: bool = False
    is_begun: bool = False
    """Whether the broker has said that something is part of it."""
    records: int = 0
    stored: dict[bytes, tuple[Place, int]] = field(default_factory=dict)
    """By value, the records that were acknowledged, and where."""
    offset: int | None = None
    """What it commits for its group, if that was acknowledged."""

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.name} {self.pair}"

    def next_value(self) -> bytes:
        self.records += 1
        return b"%d:%d" % (self.number, self.records)


class _Reader:
    """Reads one partition in one life of the broker, from its start."""

    def __init__(self, partition: Partition) -> None:
        self.log = partition.log
        self._reader = CommittedReader(self.log)
        self.values: dict[bytes, int] = {}

    @property
    def offset(self) -> int:
        return self._reader.offset

    def read(self) -> list[bytes]:
        """What is new."""
        found = []
        for record in self._reader.read_all():
            value = bytes(record.value or b"")
            if value in self.values:
                raise Violation(f"{self.log.name}: {value!r} is there twice")
            self.values[value] = record.offset
            found.append(value)
        return found


class TransactionChecker:
    """Sees what clients are told, and looks at what readers see."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._refused: set[bytes] = set()
        self._owners: dict[Pair, object] = {}
        self._last_init: dict[str, object] = {}
        self._offsets: dict[int, Attempt] = {}
        self._readers: dict[Place, _Reader] = {}
        self._seen_before: dict[Place, list[bytes]] = {}
        self._last: dict[tuple[Place, str], tuple[int, int]] = {}
        self._broker: SimulatedBroker | None = None

    # What clients do, and are told

    def begin(self, name: str, pair: Pair, *, now_ms: int, timeout_ms: int) -> Attempt:
        attempt = Attempt(len(self.attempts), name, pair, now_ms, timeout_ms)
        self.attempts.append(attempt)
        return attempt

    def next_offset(self, attempt: Attempt) -> int:
        """An offset that no other transaction commits."""
        number = len(self._offsets) + 1
        self._offsets[number] = attempt
        return number

    def refused(self, value: bytes) -> None:
        """A write that was sent once, and refused."""
        self._refused.add(value)

    def init_arrived(self, name: str, client: object) -> None:
        self._last_init[name] = client

    def is_new(self, name: str) -> bool:
        """Whether nothing has been asked for a transactional id."""
        return name not in self._last_init

    def is_alone(self, name: str, client: object) -> bool:
        """Whether nobody has taken a transactional id over from a client."""
        return self._last_init.get(name) is client

    def given(self, pair: Pair, client: object) -> None:
        if self._owners.setdefault(pair, client) is not client:
            raise Violation(f"producer and epoch {pair} were given to two clients")

    # What readers see

    def restarted(self, broker: SimulatedBroker) -> None:
        """Look at everything anew, after a crash."""
        for place, reader in self._readers.items():
            self._seen_before[place] = list(reader.values)
        self._readers = {}
        self._last = {}
        self._broker = broker
        self.look()
        for place, seen in self._seen_before.items():
            if place in self._readers and list(self._readers[place].values)[: len(seen)] != seen:
                raise Violation(
                    f"{self._readers[place].log.name}: readers have seen {seen}, and now "
                    f"{list(self._readers[place].values)}"
                )

    def look(self) -> None:
        """Read on everywhere, and judge."""
        assert self._broker is not None
        partitions = dict(self._broker.data_partitions())
        self._readers = {p: r for p, r in self._readers.items() if p in partitions}
        self._seen_before = {p: seen for p, seen in self._seen_before.items() if p in partitions}
        for place, partition in partitions.items():
            reader = self._readers.setdefault(place, _Reader(partition))
            for value in reader.read():
                self._judge_record(place, value)
        for attempt in self.attempts:
            self._judge(attempt)

    def check_rest(self) -> None:
        """Nothing is open any more, so nothing is pending."""
        assert self._broker is not None
        for partition in self._broker.all_partitions():
            log = partition.log
            if log.last_stable_offset != log.end_offset:
                raise Violation(
                    f"{log.name}: a transaction hangs at {log.last_stable_offset}: "
                    f"{list(log.producers.open_transactions())}"
                )
        for transaction in self._broker.transactions.registry.list(now_ms=0):
            if transaction.partitions or transaction.state.is_ending:
                raise Violation(f"a transaction hangs in the coordinator: {transaction}")
        self.look()
        for attempt in self.attempts:
            if Fate.PENDING in self._fates(attempt):
                raise Violation(f"{attempt} is pending, and nothing is open")

    def _judge_record(self, place: Place, value: bytes) -> None:
        number, _, index = value.partition(b":")
        attempt = self.attempts[int(number)]
        if not attempt.is_commit_sent:
            raise Violation(f"{value!r} of {attempt} is visible, and nobody has committed it")
        if attempt.outcome is Outcome.ABORTED:
            raise Violation(f"{value!r} of {attempt} is visible, and it was aborted")
        if value in self._refused:
            raise Violation(f"{value!r} of {attempt} is visible, and it was refused")
        last = self._last.get((place, attempt.name), (-1, -1))
        if (attempt.number, int(index)) <= last:
            raise Violation(f"{value!r} of {attempt} comes after {last}")
        self._last[place, attempt.name] = attempt.number, int(index)

    def _judge(self, attempt: Attempt) -> None:
        fates = set(self._fates(attempt))
        if {Fate.VISIBLE, Fate.HIDDEN} <= fates:
            raise Violation(f"{attempt} is visible in part: {self._account(attempt)}")
        if attempt.outcome is Outcome.COMMITTED and Fate.HIDDEN in fates:
            raise Violation(
                f"{attempt} was committed, and is not visible: {self._account(attempt)}"
            )

    def _account(self, attempt: Attempt) -> str:
        places = {place: reader.log.name for place, reader in self._readers.items()}
        stored = {v: (places.get(p), offset) for v, (p, offset) in attempt.stored.items()}
        return f"{stored}, offset {attempt.offset}: {[fate.value for fate in self._fates(attempt)]}"

    def _fates(self, attempt: Attempt) -> Iterator[Fate]:
        """For each place that the transaction has been told to be part of, and that is left."""
        for value, (place, offset) in attempt.stored.items():
            reader = self._readers.get(place)
            if reader is None:
                continue  # it was deleted
            if reader.log.end_offset <= offset:
                raise Violation(f"{value!r} of {attempt} was acknowledged, and is lost")
            if value in reader.values:
                yield Fate.VISIBLE
            else:
                yield Fate.HIDDEN if offset < reader.offset else Fate.PENDING
        if attempt.offset is not None:
            yield from self._fate_of_offset(attempt, attempt.offset)

    def _fate_of_offset(self, attempt: Attempt, offset: int) -> Iterator[Fate]:
        """Transactions of one transactional id follow each other: newer offsets are newer ones."""
        assert self._broker is not None
        found, is_pending = self._broker.group_offset(attempt.name)
        if found == offset:
            yield Fate.VISIBLE
        elif is_pending:
            yield Fate.PENDING
        elif found is None or self._offsets[found].number < attempt.number:
            yield Fate.HIDDEN
        if found is None:
            return
        source = self._offsets[found]
        if not source.is_commit_sent or source.outcome is Outcome.ABORTED:
            raise Violation(f"{SOURCE} in {OFFSETS_TOPIC} is at {found} of {source}, not committed")
