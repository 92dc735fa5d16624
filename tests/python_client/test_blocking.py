"""The blocking client on a running broker: the same shape, and a clean end."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from millstream import client
from millstream.client import Message, NewMessage, Subscription
from millstream.client.blocking_administration import Groups, Queues, Topics
from millstream.client.groups import AsyncGroups
from millstream.client.queues import AsyncQueues
from millstream.client.topics import AsyncTopics
from millstream.errors import ClientClosed, NotFound, UnknownTopic, Unreachable
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect


def take(subscription: Subscription, count: int) -> list[Message]:
    messages: list[Message] = []
    for _ in range(count):
        message = subscription.receive(timeout_s=HANG_S)
        assert message is not None, f"only {messages}"
        messages.append(message)
    return messages


@pytest.mark.parametrize(
    ("blocking", "asynchronous"),
    [
        (client.Connection, client.AsyncConnection),
        (client.Subscription, client.AsyncSubscription),
        (client.Message, client.AsyncMessage),
        (Topics, AsyncTopics),
        (Groups, AsyncGroups),
        (Queues, AsyncQueues),
    ],
)
def test_both_clients_have_one_shape(blocking: type, asynchronous: type) -> None:
    # What the link calls, and what blocking callers have no use for.
    inner = {
        *("attach", "attachment", "begin", "deliver", "detached", "fail", "open"),
        *("is_assigned", "is_closed", "is_queue"),
    }

    def face(kind: type) -> dict[str, list[str]]:
        return {
            name: [
                f"{each.name} {each.kind} {each.default}"
                for each in inspect.signature(member).parameters.values()
            ]
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    theirs = {name: shape for name, shape in face(asynchronous).items() if name not in inner}
    assert face(blocking) == theirs


def test_messages_go_out_and_come_back(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        sent = connection.send(name, "hello", key="k", headers={"h": "v"}, timestamp=5000)
        assert (sent.topic, sent.id, sent.timestamp_ms) == (name, "0:0", 5000)
        connection.send_many(name, ["a", NewMessage("b", key="k")])
        with connection.subscribe(name, start="earliest") as subscription:
            messages = [message for _, message in zip(range(3), subscription, strict=False)]
        assert [each.text for each in messages] == ["hello", "a", "b"]
        assert messages[0].header("h") == b"v"


def test_subscription_can_seek_and_stop(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        connection.send_many(name, [f"{number}" for number in range(1000)])
        subscription = connection.subscribe(name, start="earliest")
        assert [each.text for each in take(subscription, 3)] == ["0", "1", "2"]
        subscription.seek(500)
        assert [each.text for each in take(subscription, 2)] == ["500", "501"]
        subscription.seek(0, partition=0)
        assert take(subscription, 1)[0].text == "0"
        assert len(subscription.receive_many(10)) == 10
        subscription.close()
        assert list(subscription) == []
        assert subscription.skipped_count == 0


def test_receive_gives_up_after_its_time(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        subscription = connection.subscribe(name)
        assert subscription.receive(timeout_s=0.01) is None
        assert subscription.receive_many(5, timeout_s=0.01) == []


def test_group_and_queue_are_acknowledged(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        connection.queues.create(name, "q", redelivery_min=0, redelivery_max=0)
        connection.send_many(name, ["a", "b", "c"])
        with connection.subscribe(name, cursor=name) as reader:
            take(reader, 2)[1].ack()
        with connection.subscribe(name, cursor=name) as reader:
            assert take(reader, 1)[0].text == "c"
        with connection.subscribe(name, subscription="q", type="shared") as queue:
            a, b, c = take(queue, 3)
            a.ack()
            b.nack(delay=0)
            c.extend(60)
            [again] = take(queue, 1)
            assert (again.text, again.delivery_count) == ("b", 2)
            queue.ack(again, c)
        assert connection.queues.describe(name, "q").backlog == 0
        assert [each.name for each in connection.queues.list(name)] == ["q"]
        assert connection.queues.browse(name, "q").letters == ()
        assert connection.queues.replay(name, "q").count == 0
        connection.queues.delete(name, "q")
        with pytest.raises(NotFound):
            connection.queues.describe(name, "q")


def test_topics_are_administered(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection:
        assert len(connection.topics.create(name, partitions=2).partitions) == 2
        assert name in connection.topics.list()
        assert connection.topics.describe(name).name == name
        connection.topics.delete(name)
        with pytest.raises(UnknownTopic):
            connection.topics.describe(name)


def test_many_threads_share_a_connection(broker: BrokerProcess, name: str) -> None:
    with connect(broker.url) as connection, ThreadPoolExecutor(50) as threads:
        subscription = connection.subscribe(name)
        sent = list(threads.map(lambda n: connection.send(name, f"{n}"), range(1000)))
        assert sorted(each.offset for each in sent) == list(range(1000))
        received = list(threads.map(lambda _: subscription.receive(timeout_s=HANG_S), range(1000)))
    assert sorted(int(each.text) for each in received if each) == list(range(1000))


def test_close_ends_the_thread_and_who_waits(broker: BrokerProcess, name: str) -> None:
    before = threading.active_count()
    connection = connect(broker.url)
    subscription = connection.subscribe(name)
    assert connection.is_connected
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(list, subscription)
        while not subscription._subscription._waiting:
            threading.Event().wait(0.001)
        connection.close()
        assert waiting.result(timeout=HANG_S) == []
    connection.close()
    subscription.close()
    assert threading.active_count() == before
    with pytest.raises(ClientClosed):
        connection.send(name, "too late")
    assert list(subscription) == []


def test_nobody_there_is_told_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(Unreachable, match="millstream serve"):
        connect("http://127.0.0.1:1", connect_timeout_s=0.1)
    assert threading.active_count() == before
