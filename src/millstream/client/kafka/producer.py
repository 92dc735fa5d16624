"""Record batches on their way to the leaders of their partitions, several at a time.

A batch whose answer was lost is sent again. If it has a producer id and a sequence, the broker
takes it once; if not, it may be stored twice. What a partition is sent stays in order as long as
its batches have sequences.

Without acknowledgements (`acks=0`) nobody says what became of a batch: what is lost stays lost.

Invariant: at most five batches are unanswered at a broker, which is as many as it can tell apart
from repeated ones; of a partition that has not taken one yet, one. After `flush` every batch is
stored, or an error was raised; not with `acks=0`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from millstream.client.kafka.address import Address
from millstream.client.kafka.brokers import Brokers
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.error_codes import (
    DUPLICATE_SEQUENCE,
    LOST_TRANSACTION,
    NONE,
    OUT_OF_ORDER_SEQUENCE,
    failure,
)
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.places import Place
from millstream.client.kafka.produce_messages import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.clock import Clock
from millstream.errors import BrokerNotReady, MillstreamError, TransactionLost, Unavailable
from millstream.records.batch import parse_header

MOST_UNANSWERED = 5
UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class _Sent:
    """A batch, and what became of it."""

    number: int
    place: Place
    batch: bytes
    offset: int = UNKNOWN_OFFSET

    @property
    def what(self) -> str:
        return f"writing to {self.place[0]}/{self.place[1]}"


@dataclass(slots=True, eq=False)
class _Lane:
    """The way to one broker."""

    connection: Connection
    unanswered: deque[_Sent] = field(default_factory=deque)


class Producer:
    """Sends batches; each is a whole record batch for one partition. Not for several threads."""

    def __init__(
        self,
        brokers: Brokers,
        *,
        clock: Clock,
        transactional_id: str | None = None,
        acks: int = -1,
    ) -> None:
        if acks not in {-1, 0, 1}:
            raise ValueError(f"acks={acks}: give -1 (all), 1, or 0 (none)")
        self._brokers = brokers
        self._clock = clock
        self._transactional_id = transactional_id
        self._acks = acks
        self._all: list[_Sent] = []
        """Since the last flush."""
        self._waiting: deque[_Sent] = deque()
        self._lanes: dict[Address, _Lane] = {}
        self._lane_of: dict[Place, _Lane] = {}
        self._begun: set[Place] = set()
        """Partitions that have taken a batch."""
        self._refusal: MillstreamError | None = None
        """Why nothing more can be sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def send(self, place: Place, batch: bytes) -> None:
        """Begin to send a batch; wait only where too many are unanswered. Raises as `flush`."""
        sent = _Sent(len(self._all), place, batch)
        self._all.append(sent)
        self._waiting.append(sent)
        self._advance(self._send_waiting)

    @property
    def unanswered(self) -> int:
        """How many batches are on their way, or still wait for it."""
        return len(self._waiting) + sum(len(each.unanswered) for each in self._lanes.values())

    def flush(self) -> list[int]:
        """The base offsets of all batches since the last flush, in their order.

        -1 for one that was stored before, where the broker has forgotten where, and for all with
        `acks=0`. Raises
        TransactionLost, RefusedByBroker, UnknownTopic, or Unavailable after the timeout.
        """
        self._advance(self._settle)
        done, self._all = self._all, []
        return [each.offset for each in done]

    def close(self) -> None:
        """What is unanswered may have been stored or not."""
        for lane in self._lanes.values():
            lane.connection.close()
        self._lanes.clear()
        self._lane_of.clear()
        self._waiting.clear()
        self._all.clear()

    def _advance(self, step: Callable[[Patience], None]) -> None:
        if self._refusal is not None:
            raise self._refusal
        patience = Patience(self._brokers.settings.timeout_s, clock=self._clock)
        while True:
            try:
                return step(patience)
            except Unavailable as cause:
                self._brokers.forget()
                patience.wait(cause)

    def _settle(self, patience: Patience) -> None:
        self._send_waiting(patience)
        for lane in list(self._lanes.values()):
            self._drain(lane, patience)

    def _send_waiting(self, patience: Patience) -> None:
        while self._waiting:
            sent = self._waiting[0]
            lane = self._lane(sent.place, patience)
            while len(lane.unanswered) >= MOST_UNANSWERED or self._must_wait(sent, lane):
                self._receive(lane, patience)
            self._waiting.popleft()
            lane.connection.limit(patience.left_s)
            if self._acks == 0:
                # It is gone, for better or worse: nobody will say what became of it.
                lane.connection.tell(self._request(sent, patience))
                sent.batch = b""
                continue
            lane.unanswered.append(sent)
            try:
                lane.connection.begin(self._request(sent, patience), ProduceResponse)
            except MillstreamError:
                self._give_up(lane, lane.unanswered)
                raise

    def _must_wait(self, sent: _Sent, lane: _Lane) -> bool:
        """Whether a partition may yet refuse its first batch.

        It knows nothing of the producer then, and would take the second one, whatever its sequence.
        """
        place = sent.place
        return place not in self._begun and any(each.place == place for each in lane.unanswered)

    def _lane(self, place: Place, patience: Patience) -> _Lane:
        """The way to the partition's leader, after all that it was sent by another way."""
        address = self._brokers.leader(place, patience)
        lane = self._lanes.get(address)
        before = self._lane_of.get(place)
        if before is not None and before is not lane:
            self._drain(before, patience)
        if lane is None or not lane.connection.is_open:
            lane = _Lane(self._brokers.open(address, patience.left_s))
            self._lanes[address] = lane
        self._lane_of[place] = lane
        return lane

    def _request(self, sent: _Sent, patience: Patience) -> ProduceRequest:
        topic, partition = sent.place
        data = PartitionProduceData(index=partition, records=sent.batch)
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=patience.timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

    def _drain(self, lane: _Lane, patience: Patience) -> None:
        while lane.unanswered:
            self._receive(lane, patience)

    def _receive(self, lane: _Lane, patience: Patience) -> None:
        """Take one answer. Raises Unavailable after all that failed waits to be sent again."""
        lane.connection.limit(patience.left_s)
        cause = self._take_answer(lane)
        if cause is None:
            patience.renew()
            return
        failed = [cause[0]]
        try:
            while lane.unanswered:
                # Behind a batch that was refused, its partition refuses all, as out of order.
                places = {each.place for each in failed}
                another = self._take_answer(lane, behind=places)
                failed += [another[0]] if another else []
        finally:
            self._give_up(lane, failed)
        raise cause[1]

    def _take_answer(
        self, lane: _Lane, behind: Collection[Place] = ()
    ) -> tuple[_Sent, BrokerNotReady] | None:
        """What is to be tried again, and why. Raises what is final, or that all are lost."""
        try:
            answer = lane.connection.receive(ProduceResponse)
        except Unavailable:
            self._give_up(lane, lane.unanswered)
            raise
        sent = lane.unanswered.popleft()
        [told] = answer.responses[0].partition_responses
        if told.error_code in {NONE, DUPLICATE_SEQUENCE}:
            sent.offset = told.base_offset
            sent.batch = b""
            self._begun.add(sent.place)
            return None
        if told.error_code == OUT_OF_ORDER_SEQUENCE and sent.place in behind:
            return sent, BrokerNotReady(operation=sent.what, code=told.error_code, name="")
        error = self._failure(sent, told)
        if isinstance(error, BrokerNotReady):
            return sent, error
        self._refusal = error
        raise error

    def _give_up(self, lane: _Lane, failed: Collection[_Sent]) -> None:
        """Let what failed wait to be sent again, in its old order, through a new connection."""
        again = [*failed, *self._waiting]
        lane.unanswered = deque()
        lane.connection.close()
        self._lanes = {address: each for address, each in self._lanes.items() if each is not lane}
        self._waiting = deque(sorted(again, key=lambda each: each.number))

    def _failure(self, sent: _Sent, told: PartitionProduceResponse) -> MillstreamError:
        code = told.error_code
        if self._transactional_id is None or code not in LOST_TRANSACTION:
            return failure(code, sent.what, told.error_message)
        header = parse_header(sent.batch)
        return TransactionLost(
            transactional_id=self._transactional_id,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            operation=f"write to {sent.place[0]}/{sent.place[1]}",
            reason=LOST_TRANSACTION[code],
        )
