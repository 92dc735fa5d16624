"""A broker that is told to stop while clients wait: all are answered or hung up on, soon."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import wait_until
from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import BlockingClient, fetch_request, fetched, produce_request
from tests.fuzz.broker_load import clients, create_topic, running_broker

pytestmark = pytest.mark.system

# Requests wait for longer than any test does: a broker that waited for them would not stop.
WAIT_MS = 3_600_000
JOIN = JoinGroupRequest(
    group_id="readers",
    session_timeout_ms=600_000,
    rebalance_timeout_ms=WAIT_MS,
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
)


def _has_ended_under_signals(broker: BrokerProcess) -> bool:
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGINT)
    return not broker.is_running


def _drained(client: BlockingClient) -> int:
    """How many answers come before the end, which is no reset."""
    count = 0
    while True:
        try:
            client.receive()
        except EOFError:
            return count
        count += 1


@pytest.mark.parametrize("again", [(), (signal.SIGTERM,), (signal.SIGINT,)])
def test_stop_answers_all_who_wait(again: tuple[signal.Signals, ...], tmp_path: Path) -> None:
    settings = f"[groups]\ngroup.initial.rebalance.delay.ms = {WAIT_MS}\n"
    with running_broker(tmp_path, settings) as broker, clients(broker.port, 4) as connected:
        create_topic(broker.port, "t")
        fetching, joining, storing, idle = connected
        fetching.begin(fetch_request("t", 100_000, max_wait_ms=WAIT_MS), 12)
        fetching.receive()  # out of range: answered at once
        fetching.begin(fetch_request("t", 0, max_wait_ms=WAIT_MS, min_bytes=1 << 20), 12)
        joining.begin(JOIN, 3)
        for n in range(200):
            storing.begin(produce_request("t", batch_of(b"%d" % n), acks=-1), 9)
        for number in (signal.SIGTERM, *again):
            broker.signal(number)
        assert fetched(fetching.receive()).error_code == 0
        assert _drained(fetching) == 0
        assert _drained(joining) <= 1
        assert _drained(storing) <= 200
        assert _drained(idle) == 0
        broker.wait()
        assert broker.complaints() == []


def test_signals_without_end_do_no_harm(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, clients(broker.port, 1) as [client]:
        create_topic(broker.port, "t")
        stored = client.produce("t", batch_of(b"kept"), acks=-1)
        assert stored.error_code == 0
        wait_until(lambda: _has_ended_under_signals(broker), "the end", pause_s=0.0005)
        broker.wait()
        broker.start()
        with clients(broker.port, 1) as [again]:
            assert again.fetch("t", 0).records
