"""Clients that stall, against a real broker process: they cost little, and only themselves."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.fakes.sample_batches import batch_of
from tests.fakes.wire_client import fetch_request, fetched, header
from tests.fuzz.broker_load import (
    MIB,
    clients,
    create_topic,
    own_memory_bytes,
    produce_many,
    running_broker,
)

pytestmark = pytest.mark.system

FETCH = 12
FETCHES = 400
UNSENT_BYTES = 4 * MIB
# What the interpreter and the kernel's buffers may add to what is meant to be kept.
SLACK_BYTES = 24 * MIB


def test_reader_that_stalls_costs_a_few_mebibytes_and_holds_up_nobody(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, clients(broker.port, 5) as [writer, *stalled]:
        create_topic(broker.port, "t")
        create_topic(broker.port, "other")
        for _ in range(16):
            writer.produce("t", batch_of(b"x" * (MIB - 1000)))
        produce_many(broker.port, "other")
        before = own_memory_bytes(broker.pid)

        request = fetch_request("t", 0, partition_bytes=16 * MIB, max_bytes=16 * MIB)
        for client in stalled:
            client.socket.sendall(
                b"".join(client.asked.frame(request, FETCH) for _ in range(FETCHES))
            )
        produce_many(broker.port, "other")
        grown = own_memory_bytes(broker.pid) - before
        assert grown < len(stalled) * UNSENT_BYTES + SLACK_BYTES, f"{grown / MIB:.0f} MiB"

        # Who reads again gets every answer; each of them checks that it is the next one due.
        for _ in range(FETCHES // 8):
            assert len(fetched(stalled[0].receive()).records or b"") > 15 * MIB


def test_announced_requests_cost_what_is_sent_of_them(tmp_path: Path) -> None:
    limit = 256 * MIB
    settings = f"[kafka]\nqueued.max.request.bytes = {limit}\n"
    with running_broker(tmp_path, settings) as broker, clients(broker.port, 200) as liars:
        create_topic(broker.port, "other")
        produce_many(broker.port, "other")
        before = own_memory_bytes(broker.pid)
        for liar in liars:
            liar.socket.sendall(struct.pack(">i", 100 * MIB) + header(0, 9, 1))
        produce_many(broker.port, "other")
        grown = own_memory_bytes(broker.pid) - before
        assert grown < SLACK_BYTES, f"{grown / MIB:.0f} MiB"

        # As much as they like to send: two of them fit in, the others wait.
        for liar in liars:
            liar.socket.settimeout(0)
        for _ in range(400):
            for liar in liars:
                try:
                    liar.socket.send(bytes(MIB))
                except BlockingIOError:
                    continue
                except OSError:
                    pass  # it took too long
        produce_many(broker.port, "other")
        # By now it has read what there was room for; a buffer that grows is there twice meanwhile.
        grown = own_memory_bytes(broker.pid) - before
        assert grown < limit + SLACK_BYTES, f"{grown / MIB:.0f} MiB"
