"""A cluster of brokers that do as a test tells them: for faults that no real one can be brought to.

They listen on loopback, share one set of logs, and know as much of Kafka as our client uses. A
fault waits for the next request of its API: it hangs up before or after the request is carried
out, answers with a code, keeps silent, or says anything else.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from millstream.client.kafka.fetch_messages import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.client.kafka.produce_messages import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.client.kafka.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millstream.client.kafka.versions import VERSIONS
from millstream.protocol.apis import request_class
from millstream.protocol.codec import decode, encode
from millstream.protocol.headers import response_header
from millstream.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from millstream.protocol.messages.find_coordinator import FindCoordinatorResponse
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.notation import Struct
from millstream.records import assign_offset
from millstream.records.batch import parse_header
from tests.fakes.patience import HANG_S
from tests.fakes.request_header import has_flexible_response, parse_request_header

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 2, 3, 10, 18
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
NOT_LEADER, OUT_OF_ORDER, UNKNOWN_TOPIC = 6, 45, 3

HANG_UP, HANG_UP_AFTER, SILENCE = "hang up", "hang up after", "silence"
Fault = str | int | bytes
Script = Callable[[Any], Struct]

_REQUESTS: dict[int, type[Struct]] = {
    PRODUCE: ProduceRequest,
    FETCH: FetchRequest,
    SASL_HANDSHAKE: SaslHandshakeRequest,
    SASL_AUTHENTICATE: SaslAuthenticateRequest,
}


class ScriptedKafka:
    """The cluster: what its topics are and hold, and its brokers."""

    def __init__(self, brokers: int = 1, *, tls: ssl.SSLContext | None = None) -> None:
        self.lock = threading.RLock()
        self.tls = tls
        self.leaders: dict[str, list[int]] = {}
        """The number of the broker that leads each partition."""
        self.logs: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.gap_at_end: dict[tuple[str, int], int] = {}
        """How many offsets compaction has left nothing of, where nothing follows them."""
        self.scripts: dict[int, Script] = {}
        self.coordinator = 0
        self.versions = dict(VERSIONS)
        self.brokers = [ScriptedBroker(self, number) for number in range(brokers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in self.brokers:
            broker.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def end_offset(self, place: tuple[str, int]) -> int:
        log = self.logs[place]
        gap = self.gap_at_end.get(place, 0)
        if not log:
            return gap
        header = parse_header(log[-1])
        return header.base_offset + header.last_offset_delta + 1 + gap

    def append(self, place: tuple[str, int], batch: bytes) -> tuple[int, int]:
        """A code, and the offset; a batch that is there already is not stored again."""
        header = parse_header(batch)
        if header.producer_id >= 0:
            mine = [
                each
                for each in map(parse_header, self.logs[place])
                if each.producer_id == header.producer_id
            ]
            for each in mine:
                if each.base_sequence == header.base_sequence:
                    return 0, each.base_offset
            expected = mine[-1].base_sequence + mine[-1].records_count if mine else 0
            if header.base_sequence != expected:
                return OUT_OF_ORDER, -1
        offset = self.end_offset(place)
        stored = bytearray(batch)
        assign_offset(stored, offset, 0)
        self.logs[place].append(bytes(stored))
        return 0, offset


class ScriptedBroker:
    """One broker."""

    def __init__(self, cluster: ScriptedKafka, number: int) -> None:
        self.number = number
        self.faults: dict[int, deque[Fault]] = defaultdict(deque)
        self.seen: list[tuple[int, Any]] = []
        self.connections = 0
        self._heard = threading.Condition(cluster.lock)
        self._cluster = cluster
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._is_stopped = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests(self, api_key: int) -> list[Any]:
        return [request for key, request in self.seen if key == api_key]

    def wait_for(self, api_key: int, *, count: int) -> None:
        """Until it has seen so many requests."""
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.requests(api_key)) >= count, HANG_S)

    def stop(self) -> None:
        if self._is_stopped:
            return
        self._is_stopped = True
        # A thread that waits in accept is woken by this, and by nothing else.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _hang_up(each)
        for thread in self._threads:
            thread.join(HANG_S)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while not self._is_stopped:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._cluster.tls is not None:
                sock = self._cluster.tls.wrap_socket(sock, server_side=True)
                self._open.add(sock)
            self.connections += 1
            for frame in _frames(sock):
                if not self._answer(sock, frame):
                    break
        except OSError:
            pass
        finally:
            _hang_up(sock)
            sock.close()

    def _answer(self, sock: socket.socket, frame: bytes) -> bool:
        """Whether to go on."""
        header, position = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        request = decode(_REQUESTS.get(key) or request_class(key), version, frame, position)
        with self._cluster.lock:
            self.seen.append((key, request))
            self._heard.notify_all()
            fault = self.faults[key].popleft() if self.faults[key] else None
            if fault == HANG_UP:
                return False
            if fault == SILENCE:
                return True
            if isinstance(fault, bytes):
                sock.sendall(fault)
                return True
            answer = self._carry_out(key, request, fault if isinstance(fault, int) else 0)
        if fault == HANG_UP_AFTER:
            return False
        flexible = has_flexible_response(key, version)
        content = response_header(header.correlation_id, flexible) + encode(answer, version)
        sock.sendall(struct.pack(">i", len(content)) + content)
        return True

    def _carry_out(self, key: int, request: Any, code: int) -> Struct:
        script = self._cluster.scripts.get(key)
        if script is not None:
            return script(request)
        handlers: dict[int, Callable[[Any, int], Struct]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            API_VERSIONS: self._api_versions,
        }
        return handlers[key](request, code)

    def _api_versions(self, request: Any, code: int) -> Struct:
        keys = [
            ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in self._cluster.versions.items()
        ]
        return ApiVersionsResponse(error_code=code, api_keys=keys)

    def _metadata(self, request: MetadataRequest, code: int) -> Struct:
        cluster = self._cluster
        names = cluster.leaders if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.number, host="127.0.0.1", port=each.port)
                for each in cluster.brokers
            ],
            controller_id=0,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=code if name in cluster.leaders else UNKNOWN_TOPIC,
                    partitions=[
                        MetadataResponsePartition(partition_index=number, leader_id=leader)
                        for number, leader in enumerate(cluster.leaders.get(name or "", ()))
                    ],
                )
                for name in names
            ],
        )

    def _find_coordinator(self, request: Any, code: int) -> Struct:
        found = self._cluster.brokers[self._cluster.coordinator]
        return FindCoordinatorResponse(
            error_code=code, node_id=found.number, host="127.0.0.1", port=found.port
        )

    def _code(self, topic: str, partition: int, code: int) -> int:
        leaders = self._cluster.leaders.get(topic)
        if code or leaders is None:
            return code or UNKNOWN_TOPIC
        return 0 if leaders[partition] == self.number else NOT_LEADER

    def _produce(self, request: ProduceRequest, code: int) -> Struct:
        [topic] = request.topic_data
        [data] = topic.partition_data
        code, offset = self._code(topic.name, data.index, code), -1
        if not code:
            assert data.records is not None
            batch = bytes(data.records)
            code, offset = self._cluster.append((topic.name, data.index), batch)
        told = PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
        return ProduceResponse(
            responses=[TopicProduceResponse(name=topic.name, partition_responses=[told])]
        )

    def _fetch(self, request: FetchRequest, code: int) -> Struct:
        [topic] = request.topics
        [wanted] = topic.partitions
        place = topic.topic, wanted.partition
        code = self._code(*place, code)
        end = self._cluster.end_offset(place)
        found = [
            batch
            for batch, header in ((each, parse_header(each)) for each in self._cluster.logs[place])
            if header.base_offset + header.last_offset_delta >= wanted.fetch_offset
        ]
        # A batch or two at a time, so that there is more than one answer.
        told = PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            records=b"" if code else b"".join(found[:2]),
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, partitions=[told])]
        )

    def _list_offsets(self, request: ListOffsetsRequest, code: int) -> Struct:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self._code(topic.name, each.partition_index, code),
                            offset=0
                            if each.timestamp == -2
                            else self._cluster.end_offset((topic.name, each.partition_index)),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _frames(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb") as file:
        while True:
            prefix = file.read(4)
            if len(prefix) < 4:
                return
            (size,) = struct.unpack(">i", prefix)
            yield file.read(size)


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
