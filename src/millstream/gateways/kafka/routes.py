"""Which handler serves which API, and in which versions.

Produce and Fetch have handlers of another shape, which the connection calls itself; here they
stand only to be announced.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any, NamedTuple

from millstream.gateways.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from millstream.protocol.notation import Struct

_HANDLERS: tuple[ModuleType, ...] = (
    metadata,
    list_offsets,
    find_coordinator,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    offset_commit,
    offset_fetch,
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    txn_offset_commit,
    create_topics,
    delete_topics,
    create_partitions,
    describe_configs,
    alter_configs,
    incremental_alter_configs,
    describe_groups,
    list_groups,
    delete_groups,
    offset_delete,
    delete_records,
    describe_cluster,
    describe_log_dirs,
    elect_leaders,
    offset_for_leader_epoch,
    describe_topic_partitions,
    consumer_group_heartbeat,
    consumer_group_describe,
    describe_producers,
    describe_transactions,
    list_transactions,
    describe_acls,
    create_acls,
    delete_acls,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_quorum,
    list_config_resources,
)


class Route(NamedTuple):
    """How one API is served."""

    name: str
    oldest: int
    newest: int
    request: type[Struct]
    handle: Callable[..., Coroutine[Any, Any, Struct]]


def _route(module: ModuleType) -> Route:
    oldest, newest = module.VERSIONS
    return Route(module.__name__.rpartition(".")[2], oldest, newest, module.REQUEST, module.handle)


ROUTES: dict[int, Route] = {module.API_KEY: _route(module) for module in _HANDLERS}

ANNOUNCED: tuple[tuple[int, int, int], ...] = tuple(
    sorted(
        (module.API_KEY, *module.VERSIONS) for module in (produce, fetch, api_versions, *_HANDLERS)
    )
)
"""API key, oldest and newest version of everything that clients may use."""
