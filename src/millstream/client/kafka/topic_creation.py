"""Creating a topic, and waiting until its partitions have leaders.

A cluster of several brokers acknowledges a topic before all of them know it.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.client.kafka.brokers import Brokers, check_topic
from millstream.client.kafka.error_codes import (
    NONE,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    check,
    failure,
)
from millstream.client.kafka.patience import Patience
from millstream.client.kafka.persistence import Persistence
from millstream.errors import AlreadyExists, AnswerLost
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

# The broker's own default, since version 4 of the request; older brokers are told 1.
_DEFAULT_REPLICATION = -1
_DEFAULT_SINCE = 4
_CREATE_TOPICS = 19


def create(
    brokers: Brokers,
    persistence: Persistence,
    name: str,
    *,
    partitions: int,
    config: Mapping[str, str],
    exist_ok: bool,
) -> None:
    """Raises AlreadyExists or RefusedByBroker."""
    may_be_ours = False

    def attempt(patience: Patience) -> None:
        nonlocal may_be_ours
        try:
            code, message = _ask(brokers, name, partitions, config, patience)
        except AnswerLost:
            may_be_ours = True
            raise
        if code == TOPIC_ALREADY_EXISTS:
            if not (exist_ok or may_be_ours):
                raise AlreadyExists(kind="topic", name=name)
        elif code != NONE:
            raise failure(code, f"creating topic {name!r}", message)

    persistence.run(attempt)
    persistence.run(lambda patience: _check_ready(brokers, name, patience))


def _ask(
    brokers: Brokers, name: str, partitions: int, config: Mapping[str, str], patience: Patience
) -> tuple[int, str | None]:
    """What the controller says to it."""
    connection = brokers.open(brokers.controller(patience), patience.left_s)
    try:
        has_default = connection.version_of(_CREATE_TOPICS) >= _DEFAULT_SINCE
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=_DEFAULT_REPLICATION if has_default else 1,
            configs=[CreatableTopicConfig(name=key, value=config[key]) for key in config],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=round(patience.left_s * 1000))
        [told] = connection.ask(request, CreateTopicsResponse).topics
        return told.error_code, told.error_message
    finally:
        connection.close()


def _check_ready(brokers: Brokers, name: str, patience: Patience) -> None:
    """Raises BrokerNotReady while a partition has no leader."""
    for told in brokers.topics([name], patience):
        if told.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            # It was created, so somebody knows it.
            check(told.error_code, f"looking up topic {name!r}")
        check_topic(told)
        for each in told.partitions:
            check(each.error_code, f"finding the leader of {name}/{each.partition_index}")
