"""Admin requests at the edge of what they may ask for."""

from __future__ import annotations

from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.gateways.kafka.handlers import delete_topics, describe_configs
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from millstream.settings.overrides import TOPIC_SETTINGS
from tests.fakes.admin_desk import AdminDesk, versions_of


def test_topic_with_neither_name_nor_id_is_not_deleted() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None)])
    [answer] = AdminDesk().ask(delete_topics, request).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_no_settings_asked_for_are_all_of_them() -> None:
    topic = DescribeConfigsResource(
        resource_type=2, resource_name="__consumer_offsets", configuration_keys=()
    )
    for version in versions_of(describe_configs):
        answer = AdminDesk().ask(
            describe_configs, DescribeConfigsRequest(resources=[topic]), version
        )
        assert {config.name for config in answer.results[0].configs} == set(TOPIC_SETTINGS)
