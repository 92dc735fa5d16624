"""The APIs: from which version on each one is flexible, and the module that declares it.

A plain table, so that a header can be read without importing any message.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

from millstream.protocol.notation import Struct

API_VERSIONS: Final = 18

_NEVER: Final = 0x7FFF


class Api(NamedTuple):
    """One API of the protocol."""

    name: str
    flexible_since: int

    @property
    def module(self) -> str:
        words = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name
        )
        return f"millstream.protocol.messages.{words[1:]}"


APIS: Final[Mapping[int, Api]] = {
    0: Api("Produce", 9),
    1: Api("Fetch", 12),
    2: Api("ListOffsets", 6),
    3: Api("Metadata", 9),
    8: Api("OffsetCommit", 8),
    9: Api("OffsetFetch", 6),
    10: Api("FindCoordinator", 3),
    11: Api("JoinGroup", 6),
    12: Api("Heartbeat", 4),
    13: Api("LeaveGroup", 4),
    14: Api("SyncGroup", 4),
    15: Api("DescribeGroups", 5),
    16: Api("ListGroups", 3),
    18: Api("ApiVersions", 3),
    19: Api("CreateTopics", 5),
    20: Api("DeleteTopics", 4),
    21: Api("DeleteRecords", 2),
    22: Api("InitProducerId", 2),
    23: Api("OffsetForLeaderEpoch", 4),
    24: Api("AddPartitionsToTxn", 3),
    25: Api("AddOffsetsToTxn", 3),
    26: Api("EndTxn", 3),
    28: Api("TxnOffsetCommit", 3),
    29: Api("DescribeAcls", 2),
    30: Api("CreateAcls", 2),
    31: Api("DeleteAcls", 2),
    32: Api("DescribeConfigs", 4),
    33: Api("AlterConfigs", 2),
    35: Api("DescribeLogDirs", 2),
    37: Api("CreatePartitions", 2),
    42: Api("DeleteGroups", 2),
    43: Api("ElectLeaders", 2),
    44: Api("IncrementalAlterConfigs", 1),
    45: Api("AlterPartitionReassignments", 0),
    46: Api("ListPartitionReassignments", 0),
    47: Api("OffsetDelete", _NEVER),
    55: Api("DescribeQuorum", 0),
    60: Api("DescribeCluster", 0),
    61: Api("DescribeProducers", 0),
    65: Api("DescribeTransactions", 0),
    66: Api("ListTransactions", 0),
    68: Api("ConsumerGroupHeartbeat", 0),
    69: Api("ConsumerGroupDescribe", 0),
    74: Api("ListConfigResources", 0),
    75: Api("DescribeTopicPartitions", 0),
}

_FLEXIBLE_SINCE: Final = {key: api.flexible_since for key, api in APIS.items()}


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version has compact sizes and tagged fields; an API we do not know has not."""
    return version >= _FLEXIBLE_SINCE.get(api_key, _NEVER)


def request_class(api_key: int) -> type[Struct]:
    """The class of an API's requests, imported now. Not for those written by hand."""
    return _declared(api_key, "Request")


def response_class(api_key: int) -> type[Struct]:
    """The class of an API's responses, imported now. Not for those written by hand."""
    return _declared(api_key, "Response")


def _declared(api_key: int, kind: str) -> type[Struct]:
    api = APIS[api_key]
    declared: type[Struct] = getattr(import_module(api.module), api.name + kind)
    return declared
