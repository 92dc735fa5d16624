"""DeleteTopics (20): remove topics with all that is in them.

5 error messages; 6 topics by id.
"""

from __future__ import annotations

from collections import Counter

from millstream.errors import MillstreamError
from millstream.gateways.kafka.admission import gather_slices
from millstream.gateways.kafka.context import Context
from millstream.gateways.kafka.error_codes import ErrorCode, code_of
from millstream.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.protocol.notation import NO_UUID

API_KEY = 20
VERSIONS = (1, 6)
REQUEST = DeleteTopicsRequest

_BY_ID = 6
_KNOWS_DISABLED = 3


async def handle(request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    if context.version >= _BY_ID:
        asked = list(request.topics)
    else:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter(map(_key, asked))

    async def outcome(topic: DeleteTopicState) -> DeletableTopicResult:
        if times[_key(topic)] > 1:
            message = "the request names this topic twice"
            return _refused(topic, ErrorCode.INVALID_REQUEST, message)
        return await _delete(topic, context)

    distinct = list({_key(topic): topic for topic in asked}.values())
    return DeleteTopicsResponse(responses=await gather_slices(outcome, distinct))


async def _delete(asked: DeleteTopicState, context: Context) -> DeletableTopicResult:
    if not context.broker.settings.topics.delete_enable:
        known = context.version >= _KNOWS_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        return _refused(asked, code, "delete.topic.enable is false")
    if (asked.name is None) == (asked.topic_id == NO_UUID):
        return _refused(asked, ErrorCode.INVALID_REQUEST, "give either the name or the id")
    topics = context.broker.topics
    try:
        topic = topics.by_id(asked.topic_id) if asked.name is None else topics.get(asked.name)
        await topics.delete(topic.name)
    except MillstreamError as error:
        return _refused(asked, code_of(error), str(error))
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _refused(asked: DeleteTopicState, code: int, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=code, error_message=message
    )


def _key(asked: DeleteTopicState) -> tuple[str | None, bytes]:
    return asked.name, asked.topic_id
