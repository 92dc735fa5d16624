"""The clients that every scenario runs with, and what some of them cannot do.

An exception is stated here, once, with its reason; a scenario leaves out nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.clients.aiokafka_client import Aiokafka
from tests.clients.client_shape import Client
from tests.clients.confluent_client import Confluent
from tests.clients.kafka_python_client import KafkaPython

CLIENTS: Sequence[Client] = (Confluent(), Aiokafka(), KafkaPython())

# All but librdkafka, which can share a group with each of them.
OTHERS = tuple(client for client in CLIENTS if client.name != "confluent")
# Rebalances in which members keep what they have: aiokafka has no such assignor.
COOPERATIVE = tuple(client for client in CLIENTS if client.name != "aiokafka")
# aiokafka's admin client has no call to delete a group.
GROUP_DELETERS = tuple(client for client in CLIENTS if client.name != "aiokafka")
# kafka-python refuses headers without a value, before it sends anything.
NULL_HEADER_SENDERS = tuple(client for client in CLIENTS if client.name != "kafka-python")
# aiokafka takes no notice of being fenced: it joins again, and fences the other in turn.
FENCED = tuple(client for client in CLIENTS if client.name != "aiokafka")
# librdkafka never asks that a topic be created because somebody subscribed to it.
CREATING_READERS = OTHERS

# aiokafka commits the offsets of a transaction in the name of the group, and of no member.
MEMBER_COMMITTERS = tuple(client for client in CLIENTS if client.name != "aiokafka")
# aiokafka never asks for offsets that no open transaction may change.
STABLE_READERS = MEMBER_COMMITTERS


def with_clients(clients: Sequence[Client] = CLIENTS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", clients, ids=lambda client: client.name)
