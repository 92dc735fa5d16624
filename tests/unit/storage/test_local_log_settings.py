"""A log whose settings change while it runs, and one that stamps what is appended to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.errors import MessageTooLarge
from millstream.records import Codec
from millstream.records.batch import APPEND_TIME_BIT
from millstream.settings.log import LogSettings
from tests.fakes.log_steps import append, refusal
from tests.fakes.sample_batches import batch_of, headers_in, idempotent_batch, read_all, timed_batch
from tests.unit.storage.log_directory import LogDirectory

APPEND_TIME = LogSettings(message_timestamp_type="LogAppendTime", segment_bytes=500)


def test_new_settings_hold_from_the_next_append(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path, LogSettings())
    log = directory.open()
    append(log, batch_of(b"." * 300), batch_of(b"." * 300))
    log.reconfigure(replace(log.settings, segment_bytes=400, max_message_bytes=500))
    append(log, batch_of(b"." * 300), batch_of(b"." * 300))
    assert len(log.segments()) == 3
    assert isinstance(refusal(log, batch_of(b"." * 600)), MessageTooLarge)
    log.reconfigure(LogSettings())
    append(log, batch_of(b"." * 600))
    assert len(log.segments()) == 3
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3, 4]
    log.close()


def test_new_retention_expires_what_the_old_one_kept(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path, LogSettings(segment_bytes=200, retention_ms=-1))
    log = directory.open()
    now_ms = directory.clock.now_ms()
    for _ in range(5):
        append(log, timed_batch(now_ms - 10_000))
    log.sync()
    assert log.expire() == []
    log.reconfigure(replace(log.settings, retention_ms=5000))
    assert log.expire()
    assert log.start_offset > 0
    log.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_append_time_takes_the_place_of_the_producers(tmp_path: Path, codec: Codec) -> None:
    directory = LogDirectory(tmp_path, APPEND_TIME)
    log = directory.open()
    first_ms = directory.clock.now_ms()
    append(log, timed_batch(5, 7, codec=codec))
    directory.clock.advance_ms(1000)
    append(log, timed_batch(2**50, codec=codec))
    expected = [first_ms, first_ms, first_ms + 1000]
    assert [record.timestamp_ms for record in read_all(log)] == expected
    for header in headers_in(log.read(0, 1000)):
        assert header.attributes & APPEND_TIME_BIT
    found = log.offset_for_time(first_ms + 1)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, first_ms + 1000)
    assert log.offset_for_time(first_ms + 1001) is None
    again = directory.reopen(log)
    assert [record.timestamp_ms for record in read_all(again)] == expected
    again.close()
    # After a crash every batch proves itself by its checksum.
    crashed = directory.open()
    assert crashed.report.damage == []
    assert [record.timestamp_ms for record in read_all(crashed)] == expected
    crashed.close()


def test_repeat_is_known_although_its_time_was_changed(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path, APPEND_TIME)
    log = directory.open()
    assert append(log, idempotent_batch(0), idempotent_batch(1)) == [0, 1]
    directory.clock.advance_ms(10)
    assert append(log, idempotent_batch(1)) == [1]
    assert log.end_offset == 2
    log.close()
