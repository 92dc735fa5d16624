"""A valid history: what clients of the model log do and see, step by step as chosen from outside.

Answers get lost, workers die and are fenced, groups move; the log is right all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.transactions.history import UNKNOWN_OFFSET, Action, Event, Phase, Position
from tests.transactions.history_script import TOPIC, HistoryScript
from tests.transactions.model_log import ModelPartition

RESULTS = "results"
PARTITIONS = 2
PRODUCERS = 3
READERS = 2
MEMBERS = 2

# What to do, which one does it, and how.
Step = tuple[int, int, int]


@dataclass(slots=True)
class Producer:
    name: str
    transactional_id: str
    transaction: int | None = None
    is_fenced: bool = False


@dataclass(slots=True)
class Group:
    """Each partition has one owner, who goes on from what is committed."""

    owner: dict[int, int] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)


class ModelRun:
    def __init__(self) -> None:
        self.script = HistoryScript()
        self.logs = {(TOPIC, number): ModelPartition() for number in range(PARTITIONS)}
        self.logs[RESULTS, 0] = ModelPartition()
        self._count = 0
        self._positions: dict[tuple[int, int], int] = {}
        self._group = Group()
        self._processed: dict[int, int] = {}
        # Two of them share an id.
        self._producers: list[Producer] = []
        for number in range(PRODUCERS):
            self._producers.append(self._new_producer(number))

    def play(self, steps: Iterable[Step]) -> list[Event]:
        actions = [
            self._send,
            self._commit,
            self._commit_without_answer,
            self._abort,
            self._die,
            self._fence,
            self._send_plain,
            self._read,
            self._reassign,
            self._read_as_member,
            self._rebalance,
            self._process,
        ]
        for action, who, how in steps:
            actions[action % len(actions)](who, how)
        for producer in self._producers:
            self._finish(producer, is_commit=False)
        self._read_all()
        return self.script.events

    def _new_producer(self, number: int) -> Producer:
        self._count += 1
        producer = Producer(f"writer-{number}-{self._count}", f"id-{number // 2}")
        self._fence_others(producer)
        self.script.open(producer.name, producer.transactional_id)
        return producer

    def _fence_others(self, newcomer: Producer) -> None:
        for other in self._producers:
            if other.transactional_id == newcomer.transactional_id:
                self._finish(other, is_commit=False)
                other.is_fenced = True

    def _finish(self, producer: Producer, *, is_commit: bool) -> None:
        if producer.transaction is not None:
            for log in self.logs.values():
                log.finish(producer.transaction, is_commit=is_commit)

    def _value(self) -> str:
        self._count += 1
        return f"value-{self._count}"

    def _in_transaction(self, who: int) -> Producer:
        producer = self._producers[who % PRODUCERS]
        if producer.transaction is None:
            self._count += 1
            producer.transaction = self._count
            self.script.begin(producer.name)
        return producer

    def _send(self, who: int, how: int) -> None:
        producer = self._in_transaction(who)
        value, partition = self._value(), how % PARTITIONS
        if producer.is_fenced:
            self.script.send(producer.name, value, partition=partition, phase=Phase.UNKNOWN)
            return
        offset = self.logs[TOPIC, partition].append(value, producer.transaction)
        self.script.send(producer.name, value, offset, partition=partition)

    def _commit(self, who: int, how: int) -> None:
        producer = self._in_transaction(who)
        if producer.is_fenced:
            self.script.commit(producer.name, Phase.UNKNOWN)
            producer.transaction = None
            self._replace(who)
            return
        self._finish(producer, is_commit=True)
        self.script.commit(producer.name)
        producer.transaction = None

    def _commit_without_answer(self, who: int, how: int) -> None:
        """It may have been done, or not; the next one with this id ends it."""
        producer = self._in_transaction(who)
        if not producer.is_fenced:
            self._finish(producer, is_commit=how % 2 == 0)
        self.script.commit(producer.name, Phase.UNKNOWN if how % 3 else None)
        producer.transaction = None
        self._replace(who)

    def _abort(self, who: int, how: int) -> None:
        producer = self._in_transaction(who)
        self._finish(producer, is_commit=False)
        self.script.abort(producer.name, Phase.UNKNOWN if producer.is_fenced else Phase.OK)
        producer.transaction = None

    def _die(self, who: int, how: int) -> None:
        self._replace(who)

    def _replace(self, who: int) -> None:
        self._finish(self._producers[who % PRODUCERS], is_commit=False)
        self._producers[who % PRODUCERS] = self._new_producer(who % PRODUCERS)

    def _fence(self, who: int, how: int) -> None:
        """The first two share an id; the one that comes last has it."""
        self._replace(who % 2)

    def _send_plain(self, who: int, how: int) -> None:
        value, partition = self._value(), how % PARTITIONS
        is_answered, is_there = who % 4 != 0, how % 3 != 0
        offset = UNKNOWN_OFFSET
        if is_answered or is_there:
            offset = self.logs[TOPIC, partition].append(value, None)
        phase = Phase.OK if is_answered else Phase.UNKNOWN
        acked = offset if is_answered else UNKNOWN_OFFSET
        self.script.send("plain", value, acked, partition=partition, phase=phase)

    def _read(self, who: int, how: int) -> None:
        reader, partition = who % READERS, how % PARTITIONS
        if (reader, partition) not in self._positions:
            self.script.assign(f"reader-{reader}", 0, partition=partition)
        position = self._positions.get((reader, partition), 0)
        found, position = self.logs[TOPIC, partition].read(position, 1 + how % 5)
        self._positions[reader, partition] = position
        if found:
            self.script.poll(f"reader-{reader}", found, partition=partition)

    def _reassign(self, who: int, how: int) -> None:
        """A reader begins anew, or goes elsewhere by itself."""
        reader, partition = who % READERS, how % PARTITIONS
        position = self._positions.get((reader, partition))
        if position is None:
            return
        name = f"reader-{reader}"
        target = position // 2
        place = Position(TOPIC, partition, target)
        if how % 3:
            self.script.move(name, Action.SEEK, place)
        else:
            self.script.move(name, Action.REVOKE, place)
            self.script.move(name, Action.ASSIGN, place)
        self._positions[reader, partition] = target

    def _read_as_member(self, who: int, how: int) -> None:
        partition = how % PARTITIONS
        if partition not in self._group.owner:
            self._own(who % MEMBERS, partition)
        owner = self._group.owner[partition]
        position = self._group.position.get(partition, 0)
        found, position = self.logs[TOPIC, partition].read(position, 1 + how % 5)
        self._group.position[partition] = position
        if found:
            self.script.poll(f"member-{owner}", found, partition=partition, group="members")

    def _rebalance(self, who: int, how: int) -> None:
        """What was not committed is read again by the next owner."""
        partition = how % PARTITIONS
        owner = self._group.owner.get(partition)
        if owner is None:
            return
        place = Position(TOPIC, partition, UNKNOWN_OFFSET)
        self.script.move(f"member-{owner}", Action.REVOKE, place, group="members")
        self._group.position[partition] = self._group.position.get(partition, 0) // (1 + how % 2)
        self._own(who % MEMBERS, partition)

    def _own(self, member: int, partition: int) -> None:
        self._group.owner[partition] = member
        self.script.assign(f"member-{member}", partition=partition, group="members")

    def _process(self, who: int, how: int) -> None:
        """Results and offsets come with one transaction, whether its answer comes or not."""
        partition = how % PARTITIONS
        start = self._processed.get(partition, 0)
        found, position = self.logs[TOPIC, partition].read(start, 3)
        if not found:
            return
        self._count += 1
        name, number = "processor", self._count
        self.script.open(name, "processor")
        self.script.begin(name)
        for offset, _ in found:
            value, made_of = self._value(), Position(TOPIC, partition, offset)
            result = self.logs[RESULTS, 0].append(value, number)
            self.script.send(name, value, result, topic=RESULTS, source=made_of, group="processors")
        is_commit = who % 4 != 0
        self.logs[RESULTS, 0].finish(number, is_commit=is_commit)
        if is_commit:
            self._processed[partition] = position
        is_answered = how % 3 != 0
        if is_answered and not is_commit:
            self.script.abort(name)
        else:
            self.script.commit(name, Phase.OK if is_answered else Phase.UNKNOWN)

    def _read_all(self) -> None:
        for (topic, number), log in self.logs.items():
            self.script.assign("final", 0, partition=number, topic=topic)
            position = 0
            while position < len(log.entries):
                found, position = log.read(position, 4)
                if found:
                    self.script.poll("final", found, partition=number, topic=topic)
            self.script.end("final", position, partition=number, topic=topic)
