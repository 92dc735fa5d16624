"""DeleteTopics (20): remove topics.

2: throttling happens after the answer, not before it.
4: flexible.
5: the answer gains error_message.
6: topics by id or name; the request gains topics; the request loses topic_names; the answer gains
   topic_id; name may be null.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, Int32, String, Struct, Uuid, field


class DeleteTopicState(Struct):
    name: String | None = field(nullable=0)
    topic_id: Uuid = field()


class DeleteTopicsRequest(Struct, api_key=20, versions=(1, 6), flexible=4):
    topic_names: Sequence[String] = field(until=5)
    topics: Sequence[DeleteTopicState] = field(since=6)
    timeout_ms: Int32 = field()


class DeletableTopicResult(Struct):
    name: String | None = field(nullable=6)
    topic_id: Uuid = field(since=6)
    error_code: Int16 = field()
    error_message: String | None = field(since=5, nullable=5)


class DeleteTopicsResponse(Struct, api_key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: Int32 = field()
    responses: Sequence[DeletableTopicResult] = field()
