"""aiokafka, in an event loop of its own so that scenarios need none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced, for_code
from aiokafka.structs import OffsetAndMetadata

from tests.clients.client_shape import (
    POLL_S,
    PRODUCER_FENCED,
    Committed,
    Message,
    Place,
    Refused,
)
from tests.fakes.patience import HANG_S

_T = TypeVar("_T")


class _LoopThread:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(_within_deadline(work), self._loop)
        try:
            return future.result()
        except ProducerFenced as error:
            raise Refused(PRODUCER_FENCED, str(error)) from error
        except KafkaError as error:
            raise Refused(int(getattr(error, "errno", -1)), str(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()


async def _within_deadline(work: Coroutine[Any, Any, _T]) -> _T:
    async with asyncio.timeout(HANG_S):
        return await work


class AiokafkaProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._thread = _LoopThread()
        self._producer: Any = self._thread.run(self._start(config))
        self._sent: list[asyncio.Future[Any]] = []

    async def _start(self, config: dict[str, Any]) -> Any:
        producer = AIOKafkaProducer(**config)
        await producer.start()
        return producer

    def send(self, message: Message) -> None:
        self._thread.run(self._send(message))

    async def _send(self, message: Message) -> None:
        future = await self._producer.send(
            message.topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers) or None,
            partition=message.partition if message.partition >= 0 else None,
            timestamp_ms=message.timestamp_ms or None,
        )
        self._sent.append(future)

    def flush(self) -> list[int]:
        return self._thread.run(self._flush())

    async def _flush(self) -> list[int]:
        sent, self._sent = self._sent, []
        results: list[Any] = await asyncio.gather(*sent, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [-1 if result is None else result.offset for result in results]

    def close(self) -> None:
        self._thread.run(self._producer.stop())
        self._thread.close()


class AiokafkaTransactionalProducer(AiokafkaProducer):
    def begin(self) -> None:
        self._thread.run(self._producer.begin_transaction())

    def send_many(self, messages: Iterable[Message]) -> None:
        self._thread.run(self._send_many(messages))

    async def _send_many(self, messages: Iterable[Message]) -> None:
        for message in messages:
            await self._send(message)

    def send_offsets(self, membership: Any, offsets: Mapping[Place, int]) -> None:
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._thread.run(self._producer.send_offsets_to_transaction(wanted, membership))

    def commit(self) -> None:
        self._thread.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._thread.run(self._producer.abort_transaction())


class AiokafkaConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._thread = _LoopThread()
        self._consumer: Any = self._thread.run(self._start(config))

    async def _start(self, config: dict[str, Any]) -> Any:
        consumer = AIOKafkaConsumer(**config)
        await consumer.start()
        return consumer

    def assign(self, places: Mapping[Place, int]) -> None:
        self._thread.run(self._assign(places))

    async def _assign(self, places: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in places])
        for place, offset in places.items():
            self._consumer.seek(TopicPartition(*place), offset)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._thread.run(self._subscribe(topics=list(topics)))

    def subscribe_pattern(self, pattern: str) -> None:
        self._thread.run(self._subscribe(pattern=pattern))

    async def _subscribe(self, **what: Any) -> None:
        self._consumer.subscribe(**what)

    def poll(self) -> list[Message]:
        found = self._thread.run(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [_message(record) for records in found.values() for record in records]

    def seek(self, place: Place, offset: int) -> None:
        self._thread.run(self._seek(place, offset))

    async def _seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place), offset)

    def commit(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(committed.offset, committed.metadata)
            for place, committed in offsets.items()
        }
        self._thread.run(self._consumer.commit(wanted))

    def committed(self, place: Place) -> Committed | None:
        """The client itself tells no metadata, so it is asked of its admin client."""
        offset = self._thread.run(self._consumer.committed(TopicPartition(*place)))
        return None if offset is None else Committed(offset, self._metadata(place))

    def _metadata(self, place: Place) -> str:
        return self._thread.run(self._ask_metadata(TopicPartition(*place)))

    async def _ask_metadata(self, place: Any) -> str:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._config["bootstrap_servers"])
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(self._config["group_id"])
            return str(found[place].metadata)
        finally:
            await admin.close()

    def assignment(self) -> set[Place]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def membership(self) -> object:
        return self._config["group_id"]

    def bounds(self, place: Place) -> tuple[int, int]:
        where = TopicPartition(*place)
        first = self._thread.run(self._consumer.beginning_offsets([where]))
        end = self._thread.run(self._consumer.end_offsets([where]))
        return first[where], end[where]

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        where = TopicPartition(*place)
        found = self._thread.run(self._consumer.offsets_for_times({where: timestamp_ms}))
        return None if found[where] is None else int(found[where].offset)

    def close(self) -> None:
        try:
            self._thread.run(self._consumer.stop())
        except CancelledError:
            # Stopped while it looks for its coordinator, it lets its own cancellation through, and
            # leaves its connections open.
            self._thread.run(self._consumer._client.close())
        self._thread.close()


class AiokafkaAdmin:
    def __init__(self, address: str) -> None:
        self._thread = _LoopThread()
        self._admin: Any = self._thread.run(self._start(address))

    async def _start(self, address: str) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        return admin

    def create(
        self, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        answer = self._thread.run(self._admin.create_topics([new]))
        _check(answer.topic_errors[0][1])

    def delete(self, topic: str) -> None:
        answer = self._thread.run(self._admin.delete_topics([topic]))
        _check(answer.topic_error_codes[0][1])

    def topics(self) -> dict[str, int]:
        found = self._thread.run(self._admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found}

    def configs(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = self._thread.run(self._admin.describe_configs([asked]))
        ((code, _, _, _, entries),) = answer.resources
        _check(code)
        return {entry[0]: entry[1] for entry in entries}

    def alter(self, topic: str, changes: Mapping[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(changes))
        (answer,) = self._thread.run(self._admin.alter_configs([wanted]))
        _check(answer.resources[0][0])

    def add_partitions(self, topic: str, total: int) -> None:
        self._thread.run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, place: Place, before_offset: int) -> int:
        where = TopicPartition(*place)
        found = self._thread.run(
            self._admin.delete_records({where: RecordsToDelete(before_offset)})
        )
        return int(found[where])

    def groups(self) -> set[str]:
        return {each[0] for each in self._thread.run(self._admin.list_consumer_groups())}

    def group_members(self, group: str) -> tuple[str, int]:
        (answer,) = self._thread.run(self._admin.describe_consumer_groups([group]))
        code, _, state, _, _, members, *_ = answer.groups[0]
        _check(code)
        return state, len(members)

    def delete_group(self, group: str) -> None:
        raise NotImplementedError("aiokafka has no call to delete a group")

    def brokers(self) -> list[tuple[int, str, int]]:
        found = self._thread.run(self._admin.describe_cluster())["brokers"]
        return [(each["node_id"], each["host"], each["port"]) for each in found]

    def close(self) -> None:
        self._thread.run(self._admin.close())
        self._thread.close()


class Aiokafka:
    name = "aiokafka"

    def producer(
        self,
        address: str,
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
        linger_ms: int = 5,
        acks: int = -1,
    ) -> AiokafkaProducer:
        return AiokafkaProducer(
            {
                "bootstrap_servers": address,
                "compression_type": None if compression == "none" else compression,
                "enable_idempotence": idempotent,
                "acks": acks,
                "linger_ms": linger_ms,
                "max_request_size": max_bytes,
            }
        )

    def transactional_producer(
        self,
        address: str,
        transactional_id: str,
        *,
        compression: str = "none",
        timeout_ms: int = 60_000,
        linger_ms: int = 5,
    ) -> AiokafkaTransactionalProducer:
        return AiokafkaTransactionalProducer(
            {
                "bootstrap_servers": address,
                "transactional_id": transactional_id,
                "transaction_timeout_ms": timeout_ms,
                "compression_type": None if compression == "none" else compression,
                "linger_ms": linger_ms,
            }
        )

    def consumer(
        self,
        address: str,
        *,
        group: str | None = None,
        instance: str | None = None,
        session_ms: int = 10_000,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
        fetch_max_bytes: int = 50 * 1024**2,
        cooperative: bool = False,
    ) -> AiokafkaConsumer:
        assert not cooperative, "aiokafka knows no cooperative rebalance"
        return AiokafkaConsumer(
            {
                "bootstrap_servers": address,
                "group_id": group,
                "group_instance_id": instance,
                "session_timeout_ms": session_ms,
                "heartbeat_interval_ms": min(200, session_ms // 3),
                "auto_offset_reset": reset,
                "enable_auto_commit": False,
                "isolation_level": isolation,
                "fetch_max_bytes": fetch_max_bytes,
                "max_partition_fetch_bytes": min(fetch_max_bytes, 1024**2),
                "fetch_max_wait_ms": 100,
                "metadata_max_age_ms": 500,
            }
        )

    def admin(self, address: str) -> AiokafkaAdmin:
        return AiokafkaAdmin(address)


def _message(record: Any) -> Message:
    return Message(
        topic=record.topic,
        value=record.value,
        key=record.key,
        headers=tuple(record.headers),
        partition=record.partition,
        timestamp_ms=record.timestamp,
        offset=record.offset,
    )


def _check(code: int) -> None:
    if code:
        raise Refused(code, str(for_code(code)))
