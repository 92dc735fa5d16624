"""Files of a table, divided among tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.lake.reader import TableFile, grouped

MEGABYTE = 1 << 20


@given(st.lists(st.integers(0, 600 * MEGABYTE), max_size=50))
def test_every_file_is_read_by_one_task(sizes: list[int]) -> None:
    files = [TableFile(path=str(place), size=size, values=()) for place, size in enumerate(sizes)]
    groups = grouped(files)
    assert [file for group in groups for file in group.files] == files
    assert all(group.files for group in groups)


def test_small_files_share_a_task_and_large_ones_do_not() -> None:
    small = [TableFile(path=str(place), size=1000, values=()) for place in range(100)]
    assert len(grouped(small)) <= 16
    large = [TableFile(path=str(place), size=200 * MEGABYTE, values=()) for place in range(5)]
    assert len(grouped(large)) == 5
