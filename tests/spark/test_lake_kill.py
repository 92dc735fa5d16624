"""A driver that is killed at the worst of moments: every row is in the table once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.clients.broker_process import ROOT

FILES = 6
ROWS = 1_000
RUN_S = 300
# Four sessions of Java, one after the other.
TEST_S = 900
MOMENTS = ("task", "before", "after")


@pytest.fixture
def home(tmp_path: Path, java: None) -> Path:
    (tmp_path / "numbers").mkdir()
    for number in range(FILES):
        ids = list(range(number * ROWS, (number + 1) * ROWS))
        rows = pa.table({"id": pa.array(ids, pa.int64()), "word": [f"word {i}" for i in ids]})
        pq.write_table(rows, tmp_path / "numbers" / f"{number}.parquet")
    return tmp_path


@pytest.mark.timeout(TEST_S)
def test_killed_between_the_commits_of_delta_and_spark(home: Path) -> None:
    # The first commit creates the table; the third is followed by compaction.
    for batch in (0, 2, 3):
        run(home, "append", "after", batch)
        assert len(ids(home)) == (batch + 1) * ROWS
    finish(home, "append")


@pytest.mark.torture
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment(home: Path, seed: int) -> None:
    """Twenty times in all."""
    random = Random(seed)
    mode = ("append", "upsert")[seed % 2]
    batches = sorted(random.choice(range(FILES)) for _ in range(5))
    for batch in batches:
        run(home, mode, random.choice(MOMENTS), batch)
    finish(home, mode)


def run(home: Path, mode: str, moment: str, batch: int) -> None:
    """A query until it dies, or ends if it is never to die."""
    words = [str(home), mode, moment, str(batch)]
    said = home / "said.txt"
    with said.open("wb") as output:
        process = subprocess.run(
            [sys.executable, "-m", "tests.spark.lake_process", *words],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            timeout=RUN_S,
            check=False,
            # A group of its own, which dies together.
            start_new_session=True,
        )
    expected = 0 if moment == "never" else -signal.SIGKILL
    assert process.returncode == expected, said.read_text()[-4000:]


def finish(home: Path, mode: str) -> None:
    run(home, mode, "never", 0)
    assert ids(home) == list(range(FILES * ROWS))
    table = DeltaTable(str(home / "table"))
    assert table.transaction_version("mortal") == FILES - 1
    # Compaction came in between: there is not one file for each task of each batch.
    assert len(table.file_uris()) < 2 * FILES
    if mode == "upsert":
        assert list((home / "table" / "_millstream").rglob("*.parquet")) == []


def ids(home: Path) -> list[int]:
    """All that a full read finds."""
    table = DeltaTable(str(home / "table")).to_pyarrow_table()
    return sorted(table.column("id").to_pylist())
