"""What a topic may be called: Kafka's rule, kept by all who make a path or a record of a name."""

from __future__ import annotations

import re

from millstream.errors import InvalidName

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
CATALOG_TOPIC = "__catalog"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SUBSCRIPTIONS_TOPIC = "__subscriptions"
PIPELINES_TOPIC = "__millstream_pipelines"
"""What pipelines tell of themselves: an ordinary topic, which they create and write."""
_INTERNAL_TOPICS = {CATALOG_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SUBSCRIPTIONS_TOPIC}


def is_topic_name(name: str) -> bool:
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}


def check_topic_name(name: str) -> None:
    """Raises InvalidName."""
    if not is_topic_name(name):
        raise InvalidName(
            kind="topic",
            name=name,
            expected="1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or ..",
        )


def is_internal_topic(name: str) -> bool:
    """Whether a topic is the broker's own, which clients neither create nor delete."""
    return name in _INTERNAL_TOPICS
