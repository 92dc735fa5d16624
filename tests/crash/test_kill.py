"""`kill -9` of a real process that writes as fast as it can, again and again on one directory.

The page cache outlives the process, so this proves the side of a crash that the fake disk calls
`kept`, with real files, real threads and real timing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.crash.killed_writer import Transcript, prove_directory, writer

pytestmark = pytest.mark.system

MAX_ACKS = 400


def kill_and_prove(path: Path, transcript: Transcript, random: Random) -> None:
    """Kill the writer after some number of acknowledgements, or while it still recovers."""
    during_recovery = random.random() < 0.2
    acks = transcript.acks + random.randint(1, MAX_ACKS)
    with writer(path, "--trim") as process:
        for line in process.lines():
            transcript.note(line)
            if transcript.acks >= acks or (during_recovery and line == "opening"):
                process.kill()
        assert process.finish().stderr == ""
    if random.random() < 0.5:
        prove_directory(path, transcript, close=random.random() < 0.5)
    else:
        # The next writer finds what this one left, untouched.
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        prove_directory(copy, transcript, close=True)
        shutil.rmtree(copy)


def kill_again_and_again(path: Path, *, cycles: int, seed: int) -> None:
    random = Random(seed)
    transcript = Transcript()
    for _ in range(cycles):
        kill_and_prove(path, transcript, random)
    assert transcript.acks > 0


def test_killed_writer_keeps_every_acknowledged_batch(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", cycles=10, seed=1)


@pytest.mark.torture
def test_writer_killed_two_hundred_times_keeps_every_acknowledged_batch(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "data", cycles=200, seed=3)
