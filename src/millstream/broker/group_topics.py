"""What groups must know of the topics, kept as one value for as long as no topic changes."""

from __future__ import annotations

from millstream.broker.topics import Topic, Topics
from millstream.groups.consumer_group import TopicFacts, TopicsView


class GroupTopics:
    """Invariant: the view is the same object until a topic comes, grows or goes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._view: TopicsView | None = None
        topics.on_changed.append(self._forget)
        topics.on_deleted.append(self._forget)

    def view(self) -> TopicsView:
        if self._view is None:
            self._view = {
                topic.name: TopicFacts(topic.topic_id, len(topic.partitions), topic.is_internal)
                for topic in self._topics.all()
            }
        return self._view

    def _forget(self, _: Topic) -> None:
        self._view = None
