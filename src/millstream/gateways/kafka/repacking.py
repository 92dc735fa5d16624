"""Produce requests whose batches are packed anew, because their topics say how they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.broker.partition import Partition
from millstream.errors import MillstreamError
from millstream.protocol.messages.produce import PartitionData, ProduceRequest, TopicData
from millstream.records.batch import ATTRIBUTES_AT, CODEC_BITS, HEADER_BYTES
from millstream.records.compression import Codec
from millstream.records.recompression import codec_of, recompressed

Found = Partition | MillstreamError
"""A partition of a request, or why there is none."""

Place = tuple[str | bytes, int]
"""A topic as the request names it, and the number of a partition."""


def codecs_for(
    frame: memoryview, request: ProduceRequest, found: Sequence[Sequence[Found]]
) -> dict[Place, Codec]:
    """The partitions of a request whose batches are to be packed anew, and how."""
    codecs: dict[Place, Codec] = {}
    for topic, partitions in zip(request.topics, found, strict=True):
        for (number, start, end), partition in zip(topic.partitions, partitions, strict=True):
            if isinstance(partition, MillstreamError):
                continue
            settings = partition.topic.settings
            if settings.compression_type == "producer" or end - start < HEADER_BYTES:
                continue
            codec = codec_of(settings.compression_type)
            if frame[start + ATTRIBUTES_AT + 1] & CODEC_BITS != codec:
                codecs[topic.topic, number] = codec
    return codecs


def repacked(
    frame: bytes, request: ProduceRequest, codecs: Mapping[Place, Codec], *, limit_bytes: int
) -> tuple[bytearray, ProduceRequest]:
    """New bytes that hold the batches of a request, and the request with their places. Blocks.

    All of it is bounded by `limit_bytes`. A batch that cannot be unpacked within that stays as it
    is: the log says what is wrong with it.
    """
    out = bytearray()
    topics = []
    for topic in request.topics:
        partitions = []
        for number, start, end in topic.partitions:
            batch = memoryview(frame)[start:end]
            packed = _packed(batch, codecs.get((topic.topic, number)), limit_bytes - len(out))
            partitions.append(PartitionData(number, len(out), len(out) + len(packed)))
            out += packed
        topics.append(TopicData(topic.topic, partitions))
    return out, request._replace(topics=topics)


def _packed(batch: memoryview, codec: Codec | None, limit_bytes: int) -> memoryview | bytearray:
    if codec is None:
        return batch
    try:
        return recompressed(batch, codec, limit_bytes=limit_bytes) or batch
    except MillstreamError:
        return batch
