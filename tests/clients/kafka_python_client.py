"""kafka-python 3."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.clients.client_shape import POLL_S, Committed, Message, Place, Refused
from tests.fakes.patience import HANG_S

with warnings.catch_warnings():
    # It reads its resources in a way that Python 3.11 no longer likes.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.coordinator.assignors.cooperative_sticky import (
        CooperativeStickyAssignor,
    )
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata


class KafkaPythonProducer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._producer = KafkaProducer(**config)
        self._sent: list[Any] = []

    def send(self, message: Message) -> None:
        future = self._producer.send(
            message.topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers) or None,
            partition=message.partition if message.partition >= 0 else None,
            timestamp_ms=message.timestamp_ms or None,
        )
        self._sent.append(future)

    def flush(self) -> list[int]:
        sent, self._sent = self._sent, []
        try:
            return [future.get(HANG_S).offset for future in sent]
        except KafkaError as error:
            raise _refused(error) from error

    def close(self) -> None:
        self._producer.close(HANG_S)


class KafkaPythonTransactionalProducer(KafkaPythonProducer):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._call(self._producer.init_transactions)

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send_many(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._call(self.send, message)

    def send_offsets(self, membership: Any, offsets: Mapping[Place, int]) -> None:
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in offsets.items()
        }
        self._call(self._producer.send_offsets_to_transaction, wanted, membership)

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def _call(self, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except KafkaError as error:
            raise _refused(error) from error


class KafkaPythonConsumer:
    def __init__(self, config: dict[str, Any]) -> None:
        self._consumer = KafkaConsumer(**config)

    def assign(self, places: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place) for place in places])
        for place, offset in places.items():
            self._consumer.seek(TopicPartition(*place), offset)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def subscribe_pattern(self, pattern: str) -> None:
        self._consumer.subscribe(pattern=pattern)

    def poll(self) -> list[Message]:
        self._finish_joining()
        try:
            found = self._consumer.poll(timeout_ms=int(POLL_S * 1000))
        except KafkaError as error:
            raise _refused(error) from error
        return [_message(record) for records in found.values() for record in records]

    def _finish_joining(self) -> None:
        """Release 3.0.12 may forget a join that was begun by one poll and ended before the next.

        It then waits for ever: its coordinator asks whether to rejoin before it looks at the join
        that it began, and what made it begin counts as seen.
        """
        coordinator = self._consumer._coordinator
        if coordinator is not None and coordinator._join_task is not None:
            coordinator.request_rejoin()

    def seek(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place), offset)

    def commit(self, offsets: Mapping[Place, Committed]) -> None:
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(c.offset, c.metadata, -1)
            for place, c in offsets.items()
        }
        try:
            self._consumer.commit(wanted)
        except KafkaError as error:
            raise _refused(error) from error

    def committed(self, place: Place) -> Committed | None:
        found = self._consumer.committed(TopicPartition(*place), metadata=True)
        return None if found is None else Committed(found.offset, found.metadata)

    def assignment(self) -> set[Place]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def membership(self) -> object:
        return self._consumer.group_metadata()

    def bounds(self, place: Place) -> tuple[int, int]:
        where = TopicPartition(*place)
        first = self._consumer.beginning_offsets([where])
        end = self._consumer.end_offsets([where])
        return first[where], end[where]

    def offset_for_time(self, place: Place, timestamp_ms: int) -> int | None:
        where = TopicPartition(*place)
        found = self._consumer.offsets_for_times({where: timestamp_ms})[where]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonAdmin:
    def __init__(self, address: str) -> None:
        self.raw = KafkaAdminClient(bootstrap_servers=address)

    def create(
        self, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = {"num_partitions": partitions, "configs": dict(configs or {})}
        self._call(self.raw.create_topics, {topic: new})

    def delete(self, topic: str) -> None:
        self._call(self.raw.delete_topics, [topic])

    def topics(self) -> dict[str, int]:
        found = self.raw.describe_topics()
        return {topic["name"]: len(topic["partitions"]) for topic in found}

    def configs(self, topic: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self.raw.describe_configs([asked], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in found.items()}

    def alter(self, topic: str, changes: Mapping[str, str]) -> None:
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic, dict(changes))
        assert self.raw.alter_configs([wanted]) == {"topic": {topic: "OK"}}

    def add_partitions(self, topic: str, total: int) -> None:
        self._call(self.raw.create_partitions, {topic: total})

    def delete_records(self, place: Place, before_offset: int) -> int:
        where = TopicPartition(*place)
        found = self.raw.delete_records({where: before_offset})[where]
        return int(found["low_watermark"])

    def groups(self) -> set[str]:
        return {each["group_id"] for each in self.raw.list_groups()}

    def group_members(self, group: str) -> tuple[str, int]:
        found = self.raw.describe_groups([group])[group]
        assert found["error"] is None
        return found["group_state"], len(found["members"])

    def delete_group(self, group: str) -> None:
        found = self.raw.delete_groups([group])[group]
        if found != "OK":
            raise Refused(-1, found)

    def brokers(self) -> list[tuple[int, str, int]]:
        found = self.raw.describe_cluster()["brokers"]
        return [(each["broker_id"], each["host"], each["port"]) for each in found]

    def close(self) -> None:
        self.raw.close()

    def _call(self, call: Any, argument: Any) -> None:
        try:
            call(argument)
        except KafkaError as error:
            raise _refused(error) from error


class KafkaPython:
    name = "kafka-python"

    def producer(
        self,
        address: str,
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
        linger_ms: int = 5,
        acks: int = -1,
    ) -> KafkaPythonProducer:
        return KafkaPythonProducer(
            {
                "bootstrap_servers": address,
                "compression_type": None if compression == "none" else compression,
                "enable_idempotence": idempotent,
                "acks": acks,
                "linger_ms": linger_ms,
                "max_request_size": max_bytes,
                "reconnect_backoff_max_ms": 200,
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
    ) -> KafkaPythonTransactionalProducer:
        return KafkaPythonTransactionalProducer(
            {
                "bootstrap_servers": address,
                "transactional_id": transactional_id,
                "transaction_timeout_ms": timeout_ms,
                "compression_type": None if compression == "none" else compression,
                "linger_ms": linger_ms,
                "reconnect_backoff_max_ms": 200,
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
    ) -> KafkaPythonConsumer:
        assignor = CooperativeStickyAssignor if cooperative else RangePartitionAssignor
        return KafkaPythonConsumer(
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
                "reconnect_backoff_max_ms": 200,
                "partition_assignment_strategy": [assignor],
            }
        )

    def admin(self, address: str) -> KafkaPythonAdmin:
        return KafkaPythonAdmin(address)


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


def _refused(error: Exception) -> Refused:
    # What was refused before comes with what is refused because of it.
    cause = next((each for each in error.args if isinstance(each, KafkaError)), error)
    return Refused(int(getattr(cause, "errno", -1)), str(error))
