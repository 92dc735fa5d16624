"""Messages of what was read are counted exactly, whether offsets tell or the headers have to."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from millstream.clock import ManualClock
from millstream.settings.log import LogSettings
from millstream.storage.compaction import install, plan_compaction
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.segment_cache import SegmentCache
from tests.fakes.keyed_log import keyed_batch
from tests.fakes.sample_batches import (
    batch_of,
    commit_marker,
    headers_in,
    transactional_batch,
)

SEGMENT_BYTES = 40_000


def open_log(path: Path, **settings: object) -> LocalLog:
    return LocalLog(
        LocalFilesystem(),
        str(path / "orders" / "0"),
        name="orders/0",
        settings=LogSettings(segment_bytes=SEGMENT_BYTES, **settings),  # type: ignore[arg-type]
        clock=ManualClock(),
        cache=SegmentCache(8),
    )


def check_everywhere(log: LocalLog, seed: int) -> int:
    """Read from many places, in pieces of many sizes; returns how many messages there are."""
    chance = Random(seed)
    for _ in range(120):
        offset = chance.randrange(log.start_offset, log.end_offset)
        below = chance.choice([None, None, chance.randrange(offset, log.end_offset + 1)])
        view = log.read(offset, chance.choice([1, 3000, 9000, 20_000, 1 << 20]), below=below)
        if view:
            assert log.count_messages(view) == messages_in(view)
    offset, total = log.start_offset, 0
    while offset < log.end_offset and (view := log.read(offset, 1 << 20)):
        assert log.count_messages(view) == messages_in(view)
        total += log.count_messages(view)
        offset = headers_in(view)[-1].next_offset
    return total


def messages_in(view: memoryview) -> int:
    return sum(each.records_count for each in headers_in(view) if not each.is_control)


@pytest.mark.parametrize("seed", range(2))
def test_plain_log_is_counted_also_after_it_was_opened_again(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    log = open_log(tmp_path)
    total = 0
    for _ in range(1000):
        count = chance.randrange(1, 5)
        total += count
        log.append([batch_of(*[bytes(chance.randrange(60)) for _ in range(count)])])
    log.sync()
    assert len(log.segments()) > 2
    assert check_everywhere(log, seed) == total
    log.close()
    again = open_log(tmp_path)
    assert check_everywhere(again, seed) == total
    again.close()


def test_markers_of_transactions_are_no_messages(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(300):
        log.append([batch_of(bytes(50))])
        if 100 <= number < 150:
            log.append([transactional_batch(3 * (number - 100), count=3), commit_marker()])
    log.sync()
    assert log.end_offset == 300 + 50 * 4
    assert check_everywhere(log, 0) == 300 + 50 * 3
    log.close()
    again = open_log(tmp_path)
    assert check_everywhere(again, 0) == 300 + 50 * 3
    again.close()


def test_what_compaction_took_out_is_not_counted(tmp_path: Path) -> None:
    settings = {"cleanup_policy": frozenset({"compact"}), "min_cleanable_dirty_ratio": 0.0}
    log = open_log(tmp_path, **settings)
    for number in range(600):
        log.append([keyed_batch((b"%d" % (number % 400), bytes(100)))])
    log.sync()
    plan = plan_compaction(log, now_ms=0, buffer_bytes=1 << 20, max_decompressed_bytes=1 << 20)
    assert plan is not None
    install(log, plan, plan.run())
    left = check_everywhere(log, 0)
    assert 400 <= left < 600
    log.close()
    again = open_log(tmp_path, **settings)
    assert check_everywhere(again, 0) == left
    again.close()
