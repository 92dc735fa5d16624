"""A Kafka client of a few lines: requests and answers as our codec writes and reads them.

It sends what it is told to, whole or in pieces, and checks that answers come in the order of its
requests. There is one that waits on an event loop and one that blocks.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

from millstream.protocol.apis import is_flexible, response_class
from millstream.protocol.codec import decode, encode
from millstream.protocol.notation import Struct
from tests.fakes.patience import HANG_S
from tests.fakes.request_header import has_flexible_response
from tests.fakes.wire_messages import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_HAND_WRITTEN: dict[int, type[Struct]] = {0: ProduceResponse, 1: FetchResponse}
PRODUCE_VERSION, FETCH_VERSION = 9, 12


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def header(
    api_key: int, version: int, correlation_id: int, *, client_id: str = "test", tags: bytes = b"\0"
) -> bytes:
    """What comes before a request's own fields; `tags` where the version has them."""
    name = client_id.encode()
    fixed = struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name
    return fixed + tags if is_flexible(api_key, version) else fixed


def request_frame(request: Struct, version: int, correlation_id: int, **more: Any) -> bytes:
    assert request.API_KEY is not None
    body = encode(request, version)
    return framed(header(request.API_KEY, version, correlation_id, **more) + body)


def read_answer(content: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """The correlation id of an answer without its size, and the answer itself."""
    (correlation_id,) = struct.unpack_from(">i", content)
    position = 4
    if has_flexible_response(api_key, version):
        assert content[4] == 0, "the header of an answer has no tagged fields"
        position = 5
    struct_class = _HAND_WRITTEN.get(api_key) or response_class(api_key)
    return correlation_id, decode(struct_class, version, content, position)


def produce_request(
    topic: str | bytes,
    batch: bytes | bytearray | None,
    *,
    partition: int = 0,
    acks: int = 1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=None if batch is None else bytes(batch))]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(**_named(topic, "name"), partition_data=data)],
    )


def fetch_request(
    topic: str | bytes,
    offset: int,
    *,
    partitions: Sequence[int] = (0,),
    partition_bytes: int = 1 << 20,
    **more: Any,
) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes)
        for number in partitions
    ]
    return FetchRequest(topics=[FetchTopic(**_named(topic, "topic"), partitions=wanted)], **more)


def _named(topic: str | bytes, field_name: str) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, bytes) else {field_name: topic}


class _Asked:
    """What was asked and not answered yet."""

    def __init__(self) -> None:
        self._last_id = 0
        self._line: deque[tuple[int, int, int]] = deque()

    def frame(self, request: Struct, version: int, *, answered: bool = True, **more: Any) -> bytes:
        """The bytes of a request, for which an answer is expected."""
        self._last_id += 1
        assert request.API_KEY is not None
        if answered:
            self._line.append((self._last_id, request.API_KEY, version))
        return request_frame(request, version, self._last_id, **more)

    def answer(self, content: bytes) -> Any:
        """The answer, which must be the next one due."""
        expected_id, api_key, version = self._line.popleft()
        correlation_id, answer = read_answer(content, api_key, version)
        assert correlation_id == expected_id, "an answer came out of order"
        return answer


class WireClient:
    """A connection on the running event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.asked = _Asked()

    @classmethod
    async def connect(cls, host: str, port: int) -> WireClient:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 20))

    async def send(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()

    async def begin(self, request: Struct, version: int, **more: Any) -> None:
        """Send a request; its answer is to be received later."""
        await self.send(self.asked.frame(request, version, **more))

    async def receive(self) -> Any:
        """The answer that is due next."""
        return self.asked.answer(await self.receive_raw())

    async def receive_raw(self) -> bytes:
        """An answer without its size. Raises asyncio.IncompleteReadError at the end."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Struct, version: int) -> Any:
        await self.begin(request, version)
        return await self.receive()

    async def produce(
        self, topic: str | bytes, batch: bytes | bytearray | None, **more: Any
    ) -> PartitionProduceResponse:
        """What became of a batch."""
        version = more.pop("version", PRODUCE_VERSION)
        return produced(await self.ask(produce_request(topic, batch, **more), version))

    async def fetch(self, topic: str | bytes, offset: int, **more: Any) -> PartitionData:
        version = more.pop("version", FETCH_VERSION)
        return fetched(await self.ask(fetch_request(topic, offset, **more), version))

    async def ended(self) -> bytes:
        """Everything that comes until the broker hangs up."""
        try:
            return await self._reader.read(-1)
        except ConnectionResetError:
            return b""

    def half_close(self) -> None:
        self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except (ConnectionError, OSError):
            return


class BlockingClient:
    """A connection of a thread or process of its own."""

    def __init__(self, port: int, *, timeout_s: float = HANG_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.asked = _Asked()

    def begin(self, request: Struct, version: int, **more: Any) -> None:
        self.socket.sendall(self.asked.frame(request, version, **more))

    def receive(self) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self.asked.answer(self._exactly(size))

    def ask(self, request: Struct, version: int) -> Any:
        self.begin(request, version)
        return self.receive()

    def produce(
        self, topic: str, batch: bytes | bytearray, **more: Any
    ) -> PartitionProduceResponse:
        return produced(self.ask(produce_request(topic, batch, **more), PRODUCE_VERSION))

    def fetch(self, topic: str, offset: int, **more: Any) -> PartitionData:
        return fetched(self.ask(fetch_request(topic, offset, **more), FETCH_VERSION))

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.socket.recv(min(size - len(received), 1 << 20))
            if not chunk:
                raise EOFError("the broker hung up")
            received += chunk
        return bytes(received)


def produced(answer: ProduceResponse) -> PartitionProduceResponse:
    [topic] = answer.responses
    [partition] = topic.partition_responses
    return partition


def fetched(answer: FetchResponse) -> PartitionData:
    """The one partition of an answer."""
    [topic] = answer.responses
    [partition] = topic.partitions
    return partition
