"""Batches that are packed anew for their topics, within bounds."""

from __future__ import annotations

from millstream.gateways.kafka.repacking import Place, repacked
from millstream.protocol.messages.produce import PartitionData, ProduceRequest, TopicData
from millstream.records import Codec
from tests.hostile.unpack_bomb import MIB, bomb


def test_all_batches_of_a_request_unpack_to_no_more_than_the_limit() -> None:
    batch = bomb(records=2, record_bytes=MIB)
    places = [PartitionData(n, n * len(batch), (n + 1) * len(batch)) for n in range(4)]
    request = ProduceRequest(None, 1, 1000, [TopicData("t", places)])
    codecs: dict[Place, Codec] = {("t", n): Codec.NONE for n in range(4)}
    out, told = repacked(batch * 4, request, codecs, limit_bytes=5 * MIB)
    [topic] = told.topics
    sizes = [end - start for _, start, end in topic.partitions]
    assert [size > MIB for size in sizes] == [True, True, False, False]
    assert sizes[2:] == [len(batch)] * 2
    assert len(out) < 5 * MIB
