"""Just enough of the Kafka protocol to drive a broker at almost no cost: requests made once as
bytes, answers of which only the fields that count are looked at.

Metadata 4, Produce 7 and Fetch 4: old versions with plain layouts, which every broker still serves.
"""

from __future__ import annotations

import struct

from benchmarks.server_process import Address, connect

_PRODUCE, _FETCH, _METADATA = 0, 1, 3
_CLIENT_ID = b"bench"
_TIMEOUT_MS = 30_000
_ANSWER_BYTES = 4 << 20
# From the start of a batch to the end of its count of records.
_BATCH_HEADER_BYTES = 61


class KafkaRefused(OSError):
    """The broker answered with an error code. To be tried again, as a refused connection is."""


def metadata_request(topic: str) -> bytes:
    """Asks for one topic, and to make it where there is none."""
    return _request(_METADATA, 4, struct.pack(">i", 1) + _string(topic) + b"\x01")


def produce_request(
    topic: str, batch: bytes | bytearray, *, acks: int, partition: int = 0
) -> bytes:
    fields = struct.pack(">hhii", -1, acks, _TIMEOUT_MS, 1) + _string(topic)
    return _request(
        _PRODUCE, 7, fields + struct.pack(">iii", 1, partition, len(batch)) + bytes(batch)
    )


def produce_answer_bytes(topic: str) -> int:
    """The size of an answer to a produce request of one batch, with its length."""
    return 4 + 4 + 4 + (2 + len(topic.encode())) + 4 + (4 + 2 + 8 + 8 + 8) + 4


def check_produced(answers: bytes | bytearray, topic: str) -> None:
    """Raise KafkaRefused if one of these answers to produce requests holds an error code."""
    size = produce_answer_bytes(topic)
    first = size - 4 - 26
    codes = set(answers[first::size]) | set(answers[first + 1 :: size])
    if len(answers) % size or codes != {0}:
        raise KafkaRefused(f"produce refused with codes of the bytes {sorted(codes)}")


def fetch_request(topic: str, offset: int, *, max_bytes: int) -> bytes:
    fields = struct.pack(">iiiibi", -1, 500, 1, max_bytes, 0, 1) + _string(topic)
    return _request(_FETCH, 4, fields + struct.pack(">iiqi", 1, 0, offset, max_bytes))


def fetched(answer: memoryview, topic: str) -> tuple[int, int]:
    """The count of records in an answer to a fetch of one partition, and the next offset."""
    position = 4 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    (code, _, _, aborted) = struct.unpack_from(">hqqi", answer, position)
    if code:
        raise KafkaRefused(f"fetch refused with code {code}")
    position += 22 + max(aborted, 0) * 16 + 4
    records = next_offset = 0
    while len(answer) - position >= _BATCH_HEADER_BYTES:
        base_offset, size = struct.unpack_from(">qi", answer, position)
        if position + 12 + size > len(answer):
            break
        (last_delta,) = struct.unpack_from(">i", answer, position + 23)
        records += last_delta + 1
        next_offset = base_offset + last_delta + 1
        position += 12 + size
    return records, next_offset


class ProduceAnswers:
    """Counts answers to produce requests as they arrive, and keeps them to be checked."""

    def __init__(self, topic: str, *, request_messages: int = 1) -> None:
        self._topic = topic
        self._size = produce_answer_bytes(topic)
        self._request_messages = request_messages
        self._received = bytearray()

    def count(self, received: bytes) -> int:
        """How many messages are answered by what has just come."""
        before = len(self._received) // self._size
        self._received += received
        return (len(self._received) // self._size - before) * self._request_messages

    def check(self) -> None:
        check_produced(self._received, self._topic)


class KafkaConnection:
    """A blocking connection, one request at a time."""

    def __init__(self, address: Address) -> None:
        self.socket = connect(address)
        self._buffer = memoryview(bytearray(_ANSWER_BYTES))

    def close(self) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> memoryview:
        """The answer without its length, valid until the next request."""
        self.socket.sendall(request)
        self._receive(4)
        (size,) = struct.unpack_from(">i", self._buffer)
        self._receive(size)
        return self._buffer[:size]

    def create_topic(self, topic: str) -> None:
        """Make a topic by asking for it, and try until it is there."""
        answer = bytes(self.ask(metadata_request(topic)))
        # Whatever else the answer holds, the topic's own error stands just before its name.
        code_end = answer.rindex(_string(topic))
        if code := int.from_bytes(answer[code_end - 2 : code_end], "big"):
            raise KafkaRefused(f"no topic {topic} yet, code {code}")

    def produce(
        self, topic: str, batch: bytes | bytearray, *, acks: int = 1, partition: int = 0
    ) -> None:
        answer = self.ask(produce_request(topic, batch, acks=acks, partition=partition))
        check_produced(len(answer).to_bytes(4, "big") + bytes(answer), topic)

    def _receive(self, size: int) -> None:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        received = 0
        while received < size:
            count = self.socket.recv_into(self._buffer[received:size])
            if count == 0:
                raise ConnectionResetError("the broker closed the connection")
            received += count


def _request(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, 0) + struct.pack(">h", len(_CLIENT_ID))
    content = header + _CLIENT_ID + body
    return struct.pack(">i", len(content)) + content


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
