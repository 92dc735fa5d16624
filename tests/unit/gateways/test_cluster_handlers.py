"""Requests about what one broker without security does not have: they are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.gateways.kafka.handlers import (
    alter_partition_reassignments,
    create_acls,
    delete_acls,
    describe_acls,
    describe_quorum,
    list_partition_reassignments,
)
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.protocol.messages.describe_acls import DescribeAclsRequest
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartition,
    QuorumTopic,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tests.fakes.admin_desk import AdminDesk, versions_of

SECURITY_DISABLED = 54


@pytest.mark.parametrize("version", versions_of(describe_acls))
def test_access_rules_cannot_be_asked_for(version: int) -> None:
    desk = AdminDesk()
    described = desk.ask(describe_acls, DescribeAclsRequest(), version)
    assert (described.error_code, described.resources) == (SECURITY_DISABLED, [])
    created = desk.ask(create_acls, CreateAclsRequest(creations=[AclCreation()] * 2), version)
    assert [each.error_code for each in created.results] == [SECURITY_DISABLED] * 2
    deletion = DeleteAclsRequest(filters=[DeleteAclsFilter()])
    deleted = desk.ask(delete_acls, deletion, version)
    assert [each.error_code for each in deleted.filter_results] == [SECURITY_DISABLED]


def test_partitions_stay_on_the_one_broker() -> None:
    desk = AdminDesk()

    async def create() -> None:
        await desk.started()
        await desk.topics.create("t", partitions=1, overrides={})

    asyncio.run(create())

    def reassign(topic: str, replicas: list[int] | None) -> int:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[partition])]
        )
        answer = desk.ask(alter_partition_reassignments, request)
        assert answer.error_code == 0
        code: int = answer.responses[0].partitions[0].error_code
        return code

    assert reassign("t", [0]) == 0
    assert reassign("t", [1]) == 39
    assert reassign("t", [0, 1]) == 39
    assert reassign("t", None) == 85
    assert reassign("nope", [0]) == 3
    listed = desk.ask(list_partition_reassignments, ListPartitionReassignmentsRequest())
    assert (listed.error_code, listed.topics) == (0, [])


@pytest.mark.parametrize("version", versions_of(describe_quorum))
def test_quorum_is_the_one_broker(version: int) -> None:
    desk = AdminDesk()

    def ask(topic: str, number: int) -> Any:
        partition = QuorumPartition(partition_index=number)
        request = DescribeQuorumRequest(
            topics=[QuorumTopic(topic_name=topic, partitions=[partition])]
        )
        answer = desk.ask(describe_quorum, request, version)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    state = ask("__cluster_metadata", 0)
    assert (state.error_code, state.leader_id, state.observers) == (0, 0, [])
    [voter] = state.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (0, state.high_watermark)
    assert state.high_watermark > 0
    assert ask("__cluster_metadata", 1).error_code == 3
    assert ask("t", 0).error_code == 3
