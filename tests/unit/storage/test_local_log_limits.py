"""The local engine in a real process: few file handles, mapped files, hints to the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.settings.log import LogSettings
from tests.fakes.log_steps import append
from tests.fakes.sample_batches import batch_of
from tests.unit.storage.log_directory import LogDirectory, UnsyncedFilesystem

pytestmark = pytest.mark.system

SEGMENTS = 1000

# Both scripts get a directory and a checkpoint, and read the whole log.
OPEN = """
import resource, sys
from millstream.clock import SystemClock
from millstream.settings.log import LogSettings
from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.local_log import LocalLog
from millstream.storage.recovery import LogCheckpoint
from millstream.storage.segment_cache import SegmentCache

directory, *numbers = sys.argv[1:]
log = LocalLog(
    LocalFilesystem(),
    directory,
    name="orders/0",
    settings=LogSettings(segment_bytes=1, retention_ms=-1),
    clock=SystemClock(),
    cache=SegmentCache(64),
    checkpoint=LogCheckpoint(*map(int, numbers)),
)
"""
READ_UNDER_A_LIMIT = """
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
for offset in [*range(log.end_offset), *range(0, log.end_offset, 7)]:
    view = log.read(offset, 1)
    assert int.from_bytes(view[:8], "big") == offset, offset
    if len(held) < 50:
        held.append(view)
assert log.offset_for_time(0) is not None
log.append([bytearray(held[0])])
log.close()
print("read", offset, "and", len(held), "views are still good:", len({bytes(v) for v in held}))
"""
READ_TWO = """
log.read(0, 1)
log.read(1, 1)
print(open("/proc/self/maps").read())
"""


def stored(path: Path, segments: int) -> list[str]:
    """A log of segments of one batch each; the arguments that a script opens it with."""
    settings = LogSettings(segment_bytes=1, retention_ms=-1)
    directory = LogDirectory(path, settings, filesystem=UnsyncedFilesystem())
    log = directory.open()
    for number in range(segments):
        append(log, batch_of(b"%d" % number))
    log.close()
    checkpoint = log.checkpoint()
    return [
        str(path),
        str(checkpoint.recovery_point),
        str(checkpoint.end_offset),
        str(checkpoint.active_size),
    ]


def test_a_thousand_segments_are_read_with_few_file_handles(tmp_path: Path) -> None:
    arguments = stored(tmp_path / "log", SEGMENTS)
    script = tmp_path / "read.py"
    script.write_text(OPEN + READ_UNDER_A_LIMIT)
    run = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "read 994 and 50 views are still good: 50"


def test_files_of_a_read_segment_are_mapped(tmp_path: Path) -> None:
    arguments = stored(tmp_path / "log", 3)
    script = tmp_path / "read.py"
    script.write_text(OPEN + READ_TWO)
    run = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=True
    )
    mapped = {line.split("/")[-1] for line in run.stdout.splitlines() if str(tmp_path) in line}
    assert {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000001.log",
        "00000000000000000001.index",
    } <= mapped
    assert "00000000000000000002.log" not in mapped


@pytest.mark.needs("strace")
def test_system_is_told_that_segments_are_read_in_sequence(tmp_path: Path) -> None:
    arguments = stored(tmp_path / "log", 3)
    script = tmp_path / "read.py"
    script.write_text(OPEN + READ_TWO)
    trace = tmp_path / "trace"
    run = subprocess.run(
        [
            "strace",
            "--decode-fds=path",
            "-f",
            "-e",
            "trace=fadvise64,madvise",
            "-o",
            str(trace),
            sys.executable,
            str(script),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    calls = trace.read_text().splitlines()
    for name in ("00000000000000000000.log", "00000000000000000000.index"):
        assert any(name in call and "POSIX_FADV_SEQUENTIAL" in call for call in calls)
    assert any("madvise" in call and "MADV_SEQUENTIAL" in call for call in calls)
