"""Tells those who want to know that a topic has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.broker.topics import Topic

_log = logging.getLogger(__name__)


def tell_listeners(listeners: Iterable[Callable[[Topic], None]], topic: Topic) -> None:
    for listener in listeners:
        try:
            listener(topic)
        except Exception:  # Outer edge of a listener: what it has to do is not ours to undo.
            _log.exception(
                "topic %(topic)s has changed, and a listener failed", {"topic": topic.name}
            )
